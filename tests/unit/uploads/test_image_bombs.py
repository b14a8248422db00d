"""Every limit has its bomb: a file that would take much, in a process whose peak of memory is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from runners.uploads.image_limits import LIMITS
from tests.unit.uploads.bombs import HARMLESS, REFUSED, jpeg_of_scans, png, saved, strips

if TYPE_CHECKING:
    from collections.abc import Callable

HARMLESS_MIB = 16


@pytest.mark.parametrize("name", REFUSED)
def test_a_bomb_is_refused_before_it_takes_anything(decoded: Any, name: str) -> None:  # noqa: ANN401
    made, text = REFUSED[name]
    answer, mib = decoded(made())
    assert text in answer
    assert mib <= HARMLESS_MIB


@pytest.mark.parametrize("name", HARMLESS)
def test_a_bomb_beside_the_image_is_not_looked_at(decoded: Any, name: str) -> None:  # noqa: ANN401
    answer, mib = decoded(HARMLESS[name]())
    assert isinstance(answer, list), answer
    assert mib <= HARMLESS_MIB


def large(mode: str, kind: str, side: int = 4890, **options: object) -> bytes:
    return saved(Image.new(mode, (side, side), 77 if mode in {"L", "I", "F", "I;16"} else None), kind, **options)


LARGEST = {
    "PNG, grey": lambda: large("L", "PNG"),
    "PNG of 16 bits": lambda: large("I;16", "PNG"),
    "PNG, transparent": lambda: large("RGBA", "PNG"),
    "PNG of colours of 16 bits": lambda: png(width=4890, height=4890, bits=16, colour=6),
    "JPEG": lambda: large("RGB", "JPEG"),
    "JPEG, CMYK": lambda: large("CMYK", "JPEG"),
    "JPEG, progressive": lambda: large("RGB", "JPEG", progressive=True),
    "JPEG of the most scans": lambda: jpeg_of_scans(20, 4400, 4400, layers=3),
    "WebP": lambda: large("RGB", "WEBP", 3000),
    "WebP, lossless": lambda: large("RGBA", "WEBP", 3000, lossless=True),
    "GIF": lambda: large("L", "GIF"),
    "BMP": lambda: large("RGB", "BMP", 4400),
    "TIFF of floats": lambda: large("F", "TIFF", compression="tiff_adobe_deflate"),
    "TIFF of colours": lambda: large("RGB", "TIFF", compression="tiff_lzw"),
    "TIFF of one strip": lambda: large("RGB", "TIFF", 3400, compression="tiff_adobe_deflate", strip_size=1 << 28),
    "TIFF of JPEG": lambda: large("RGB", "TIFF", compression="jpeg"),
    "TIFF of fax": lambda: large("1", "TIFF", compression="group4"),
}

LARGEST_IN_COLOURS = LARGEST | {
    "JPEG, progressive": lambda: large("RGB", "JPEG", 4150, progressive=True),
    "JPEG of the most scans": lambda: jpeg_of_scans(20, 3650, 3650, layers=3),
    "BMP": lambda: large("RGB", "BMP", 4150),
}


@pytest.mark.parametrize(
    ("function", "name", "made"),
    [("images", *one) for one in LARGEST.items()] + [("images.decode_rgb", *one) for one in LARGEST_IN_COLOURS.items()],
)
def test_the_largest_images_take_what_the_table_says(
    decoded: Any,  # noqa: ANN401
    function: str,
    name: str,
    made: Callable[[], bytes],
) -> None:
    data = made()
    answer, mib = decoded(data, function)
    assert isinstance(answer, list), answer
    # numpy and the decoders' own code take some as well
    assert mib <= (LIMITS.decoded_bytes - len(data) >> 20) + 16


def test_a_file_of_many_strips_is_read(decoded: Any) -> None:  # noqa: ANN401
    sheet = Image.fromarray(np.zeros((4096, 64), np.uint8))
    answer, _ = decoded(saved(sheet, "TIFF", compression="tiff_adobe_deflate", strip_size=64))
    assert answer == [4096, 64]
    answer, _ = decoded(strips(bytes(64), 1, compression=1))
    assert answer == [1, 64]
