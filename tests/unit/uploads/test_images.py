"""Images as users upload them, down to pixels; and bytes that are none."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps, ImageSequence

from runners.uploads import UnreadableImage
from runners.uploads.image_files import reduce
from runners.uploads.images import decode, decode_rgb

if TYPE_CHECKING:
    import numpy.typing as npt

SLOPE = np.add.outer(np.arange(24) * 5, np.arange(40) * 3).astype(np.uint8)
LOSSLESS = ("PNG", "GIF", "BMP", "TIFF")


def file(image: Image.Image, file_format: str = "PNG", **options: object) -> bytes:
    made = BytesIO()
    image.save(made, file_format, **options)
    return made.getvalue()


def grey(levels: npt.NDArray[np.uint8] = SLOPE) -> Image.Image:
    return Image.fromarray(levels)


def png_of(width: int, height: int) -> bytes:
    """A file that announces a size and ends there."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = struct.pack(">I", 1000) + b"IDAT"
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header)) + pixels


def bmp_of_os2() -> bytes:
    """With the first header that there was"""
    rows = np.pad(SLOPE[::-1], ((0, 0), (0, -SLOPE.shape[1] % 4)))
    palette = bytes(level for level in range(256) for _ in range(3))
    header = struct.pack("<IHHHH", 12, SLOPE.shape[1], SLOPE.shape[0], 1, 8)
    begin = 14 + len(header) + len(palette)
    return struct.pack("<2sIII", b"BM", begin + rows.size, 0, begin) + header + palette + rows.tobytes()


FILES = {
    "PNG": file(grey()),
    "PNG of 16 bits": file(Image.fromarray(SLOPE.astype(np.uint16) * 257)),
    "PNG with a palette": file(grey().convert("P"), transparency=3),
    "JPEG": file(grey().convert("RGB"), "JPEG"),
    "JPEG, progressive": file(grey(), "JPEG", progressive=True),
    "WebP": file(grey(), "WEBP"),
    "GIF": file(grey(), "GIF", save_all=True, append_images=[grey(SLOPE[::-1])]),
    "BMP": file(grey(), "BMP"),
    "BMP of OS/2": bmp_of_os2(),
    "TIFF": file(grey(), "TIFF"),
    "TIFF, packed": file(grey(), "TIFF", compression="tiff_lzw"),
    "TIFF of floats": file(Image.fromarray(SLOPE.astype(np.float32)), "TIFF"),
}


def test_a_bmp_of_os2_is_read() -> None:
    assert np.array_equal(decode(bmp_of_os2()), SLOPE)


@pytest.mark.parametrize("file_format", LOSSLESS)
def test_grey_levels_are_those_of_the_file(file_format: str) -> None:
    decoded = decode(file(grey(), file_format))
    assert decoded.dtype == np.uint8
    assert np.array_equal(decoded, SLOPE)


@pytest.mark.parametrize("file_format", ["JPEG", "WEBP"])
def test_lossy_formats_come_close(file_format: str) -> None:
    decoded = decode(file(grey().convert("RGB"), file_format, quality=95))
    assert np.abs(decoded.astype(int) - SLOPE).max() <= 6


def test_colours_become_their_brightness() -> None:
    colours = Image.new("RGB", (3, 1))
    colours.putdata([(255, 0, 0), (0, 255, 0), (0, 0, 255)])
    assert decode(file(colours)).tolist() == [[76, 150, 29]]


@pytest.mark.parametrize("file_format", ["PNG", "BMP", "TIFF", "JPEG", "WEBP"])
def test_colours_are_those_of_the_file_where_they_are_asked_for(file_format: str) -> None:
    colours = np.zeros((16, 48, 3), np.uint8)
    colours[:, :16, 0] = colours[:, 16:32, 1] = colours[:, 32:, 2] = 250
    decoded = decode_rgb(file(Image.fromarray(colours), file_format))
    assert (decoded.shape, decoded.dtype.name) == (colours.shape, "uint8")
    if file_format in LOSSLESS:
        assert np.array_equal(decoded, colours)
    else:
        # the colours of neighbours run into each other
        assert np.abs(decoded.astype(int) - colours)[:, [8, 24, 40]].max() <= 6


@pytest.mark.parametrize("name", FILES)
def test_what_has_no_colours_is_grey_in_all_three(name: str) -> None:
    levels = decode(FILES[name])
    spread = decode_rgb(FILES[name])
    assert spread.shape == (*levels.shape, 3)
    assert np.abs(spread.astype(int) - levels[..., None]).max() <= 1


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "YCbCr", "I;16"])
def test_any_mode_is_black_and_white_where_it_should_be(mode: str) -> None:
    halves = Image.new("1", (8, 4))
    halves.paste(1, (4, 0, 8, 4))
    image = Image.fromarray(np.asarray(halves) * np.uint16(65535)) if mode == "I;16" else halves.convert(mode)
    file_format = "JPEG" if mode in {"CMYK", "YCbCr"} else "PNG"
    expected = np.tile(np.array([0, 0, 0, 0, 255, 255, 255, 255]), (4, 1))
    assert np.abs(decode(file(image, file_format)).astype(int) - expected).max() <= 2
    assert np.abs(decode_rgb(file(image, file_format)).astype(int) - expected[..., None]).max() <= 2


def test_transparent_parts_are_white() -> None:
    drawn = Image.new("RGBA", (3, 1), (0, 0, 0, 0))
    drawn.putpixel((1, 0), (0, 0, 0, 255))
    drawn.putpixel((2, 0), (0, 0, 0, 128))
    assert decode(file(drawn)).tolist() == [[255, 0, 127]]
    assert decode(file(drawn, "WEBP", lossless=True)).tolist() == [[255, 0, 127]]
    assert decode_rgb(file(drawn)).tolist() == [[[255] * 3, [0] * 3, [127] * 3]]


def test_a_transparent_colour_of_a_palette_is_white() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 10, 10, 200, 200, 200])
    image.putpixel((1, 0), 1)
    assert decode(file(image, transparency=0)).tolist() == [[255, 200]]


def test_sixteen_bits_become_eight() -> None:
    assert decode(file(Image.fromarray(np.array([[0, 255, 256, 32768, 65535]], np.uint16)))).tolist() == [
        [0, 0, 1, 128, 255]
    ]


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_levels_without_an_agreed_white_are_spread(kind: type[np.number[Any]]) -> None:
    assert decode(file(Image.fromarray(np.array([[-5, 0, 5]], kind)), "TIFF")).tolist() == [[0, 128, 255]]
    assert decode(file(Image.fromarray(np.array([[7, 7]], kind)), "TIFF")).tolist() == [[0, 0]]


def test_levels_that_are_no_numbers_are_taken_for_zero() -> None:
    levels = np.array([[np.nan, np.inf, -np.inf, 0, 1]], np.float32)
    assert decode(file(Image.fromarray(levels), "TIFF")).tolist() == [[0, 0, 0, 0, 255]]


def test_the_first_frame_is_taken() -> None:
    frames = file(grey(), "GIF", save_all=True, append_images=[grey(SLOPE[::-1])])
    assert np.array_equal(decode(frames), SLOPE)


@pytest.mark.parametrize("mode", ["L", "P"], ids=["one table of colours", "a table of each frame"])
def test_the_decoder_sees_no_further_frame_of_a_gif(mode: str) -> None:
    noise = np.random.default_rng(7).integers(0, 256, (64, 64, 3), np.uint8)
    first, second = (Image.fromarray(pixels).convert(mode) for pixels in (noise, 255 - noise))
    reduced = b"".join(
        bytes(piece) for piece in reduce(file(first, "GIF", save_all=True, append_images=[second])).pieces
    )
    with Image.open(BytesIO(reduced)) as seen:
        assert sum(1 for _ in ImageSequence.Iterator(seen)) == 1
        seen.seek(0)
        assert np.array_equal(np.asarray(seen.convert("RGB")), np.asarray(first.convert("RGB")))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_images_stand_upright(orientation: int, file_format: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = file(grey(), file_format, exif=exif)
    with Image.open(BytesIO(data)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("L"))
    assert decode(data).shape == ((40, 24) if orientation > 4 else (24, 40))
    assert np.array_equal(decode(data), expected)
    assert np.abs(decode_rgb(data).astype(int) - expected[..., None]).max() <= 1


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_none(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert np.array_equal(decode(file(grey(), exif=exif)), SLOPE)


def test_a_tiff_without_rows_in_its_strips_is_malformed() -> None:
    whole = file(grey(), "TIFF")
    rows = struct.pack("<HHI", 278, 4, 1)
    assert rows in whole
    with pytest.raises(UnreadableImage, match=r"^the image is truncated or malformed$"):
        decode(whole.replace(rows, struct.pack("<HHI", 278, 4, 0)))


def test_too_many_pixels_are_refused_by_the_header() -> None:
    with pytest.raises(UnreadableImage, match=r"^expected at most 24 megapixels, got a PNG of 6000 × 4001 pixels$"):
        decode(png_of(6000, 4001))
    with pytest.raises(UnreadableImage, match=r"^expected at most 0.0009 megapixels, got a PNG of 40 × 24 pixels$"):
        decode(file(grey()), max_megapixels=0.0009)
    assert decode(file(grey()), max_megapixels=0.00096).shape == (24, 40)


@pytest.mark.parametrize("side", [10_000, 100_000])
def test_far_too_many_pixels_are_refused_likewise(side: int) -> None:
    with pytest.raises(UnreadableImage, match=rf"^expected at most 24 megapixels, got a PNG of {side} × {side} p"):
        decode(png_of(side, side))


def test_the_limits_of_pillow_are_not_in_the_way_of_a_higher_one() -> None:
    blank = Image.new("1", (10_000, 10_000))
    assert decode(file(blank), max_megapixels=100).shape == (10_000, 10_000)
    assert decode(file(blank, "GIF"), max_megapixels=100).shape == (10_000, 10_000)


def test_other_bytes_are_named() -> None:
    with pytest.raises(UnreadableImage, match=r"^expected an image \(PNG, .*, TIFF\), got no bytes$"):
        decode(b"")
    with pytest.raises(UnreadableImage, match=r"got 9 bytes that begin with b'%PDF-1.7'$"):
        decode(b"%PDF-1.7\n")
    with pytest.raises(UnreadableImage, match=r"^expected an image"):
        decode(file(grey(), "PPM"))


@pytest.mark.parametrize("name", [name for name in FILES if name != "GIF"])
def test_half_a_file_is_refused(name: str) -> None:
    with pytest.raises(UnreadableImage, match=r"^the image is truncated or malformed$"):
        decode(FILES[name][: len(FILES[name]) // 2])


def expect_an_answer(data: bytes) -> None:
    with suppress(UnreadableImage):
        decoded = decode(data, max_megapixels=1)
        assert (decoded.dtype.name, decoded.ndim) == ("uint8", 2)
        assert 0 < decoded.size <= 1e6
        assert decode_rgb(data, max_megapixels=1).shape == (*decoded.shape, 3)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_with_our_exception(data: bytes) -> None:
    expect_an_answer(data)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_damaged_files_are_read_or_refused_with_our_exception(name: str, data: st.DataObject) -> None:
    damaged = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    expect_an_answer(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
    expect_an_answer(bytes(damaged))
