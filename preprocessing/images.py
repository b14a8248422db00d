"""
From the bytes of an image file to grey pixels.

What always holds: for any bytes `decode` answers or raises UnreadableImage, and an image with too many pixels is
refused by its header, before any pixel is decoded.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.ExifTags import Base

from .errors import UnreadableImage

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

__all__ = ["FORMATS", "MAX_MEGAPIXELS", "decode"]

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MAX_MEGAPIXELS = 24.0
"""What a good camera takes; grey, such an image takes 90 MB while it is decoded, transparent 180, deep 280"""

_TURNS: dict[int, Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]]] = {
    2: lambda grey: grey[:, ::-1],
    3: lambda grey: grey[::-1, ::-1],
    4: lambda grey: grey[::-1],
    5: lambda grey: grey.T,
    6: lambda grey: np.rot90(grey, -1),
    7: lambda grey: grey[::-1, ::-1].T,
    8: np.rot90,
}
"""What stands an image upright, by its EXIF orientation"""


def decode(data: bytes, *, max_megapixels: float = MAX_MEGAPIXELS) -> npt.NDArray[np.uint8]:
    """
    Grey pixels [height, width], 0 = black, as a viewer shows them: upright, the first frame, transparent parts on
    white. Deep images are brought to 256 levels.
    """
    try:
        # opening reads the header only
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            kind, (width, height) = image.format, image.size
            if 0 < width * height <= max_megapixels * 1e6:
                return np.ascontiguousarray(_upright(_grey(image), image))
    except UnidentifiedImageError as error:
        raise UnreadableImage(f"expected an image ({', '.join(FORMATS)}), got {_opening(data)}") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnreadableImage(f"expected at most {max_megapixels:g} megapixels, got far more") from error
    # damaged files make Pillow raise nearly every exception there is
    except Exception as error:
        raise UnreadableImage("the image is truncated or malformed") from error
    raise UnreadableImage(f"expected at most {max_megapixels:g} megapixels, got a {kind} of {width} × {height} pixels")


def _opening(data: bytes) -> str:
    return f"{len(data)} bytes that begin with {data[:8]!r}" if data else "no bytes"


def _grey(image: Image.Image) -> npt.NDArray[np.uint8]:
    if image.mode.startswith("I;16"):
        return (np.asarray(image) >> 8).astype(np.uint8)
    if image.mode in {"I", "F"}:
        return _spread(np.array(image, np.float32))
    if image.has_transparency_data:
        drawn = image if image.mode == "RGBA" else image.convert("RGBA")
        image = Image.new("L", drawn.size, "white")
        image.paste(drawn.convert("L"), mask=drawn.getchannel("A"))
    return np.asarray(image.convert("L"))


def _spread(levels: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """
    32-bit levels have no agreed black and white: the darkest becomes black, the lightest white. Changes `levels`, of
    which there is one copy only: they are large.
    """
    levels[~np.isfinite(levels)] = 0
    # halved, because the difference of two numbers need not be one
    levels *= 0.5
    levels -= levels.min()
    levels /= levels.max() or 1
    levels *= 255
    return np.rint(levels, out=levels).astype(np.uint8)


def _upright(grey: npt.NDArray[np.uint8], image: Image.Image) -> npt.NDArray[np.uint8]:
    # asked after decoding: Pillow has turned a TIFF by then, and says so
    orientation: Any = image.getexif().get(Base.Orientation)
    turn = _TURNS.get(orientation) if isinstance(orientation, int) else None
    return turn(grey) if turn else grey
