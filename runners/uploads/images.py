"""
From the bytes of an image file to grey or coloured pixels.

What always holds: for any bytes `decode` and `decode_rgb` answer or raise UnreadableImage, and what would take too much
memory or time is refused before any pixel is decoded: see `image_limits`. A decoder sees what draws one page or the
first frame, and nothing else.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from itertools import accumulate
from typing import IO, TYPE_CHECKING, Literal, cast

import numpy as np
from PIL import Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from .image_files import FORMATS, count_pages, reduce
from .image_limits import LIMITS, MAX_MEGAPIXELS, Reduced, malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt
    from PIL.ImageFile import ImageFile

    Pixels = npt.NDArray[np.uint8]
    """[height, width], or [height, width, 3]"""

__all__ = ["FORMATS", "LIMITS", "MAX_MEGAPIXELS", "count_pages", "decode", "decode_rgb"]

_Mode = Literal["L", "RGB"]

# Named one by one: `Image.open` would ask all decoders that Pillow has.
_DECODERS: dict[str, type[ImageFile]] = {
    "PNG": PngImageFile,
    "JPEG": JpegImageFile,
    "WEBP": WebPImageFile,
    "GIF": GifImageFile,
    "BMP": BmpImageFile,
    "TIFF": TiffImageFile,
}
_BAND_PIXELS = 1 << 20
"""Copies in other modes are made of so many pixels at a time: a whole image is large"""
_TURNS: dict[int | None, Callable[[Pixels], Pixels]] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: np.rot90,
}
"""What stands an image upright, by its EXIF orientation"""


def decode(data: bytes, *, max_megapixels: float = MAX_MEGAPIXELS) -> Pixels:
    """
    Grey pixels [height, width], 0 = black, as a viewer shows them: upright, the first frame, transparent parts on
    white. Deep images are brought to 256 levels.
    """
    return _upright(data, "L", max_megapixels)


def decode_rgb(data: bytes, *, page: int = 0, max_megapixels: float = MAX_MEGAPIXELS) -> Pixels:
    """Pixels [height, width, 3] of red, green and blue, likewise; of one of a TIFF's pages, the first of which is 0"""
    return _upright(data, "RGB", max_megapixels, page)


def _upright(data: bytes, mode: _Mode, max_megapixels: float, page: int = 0) -> Pixels:
    reduced = reduce(data, page)
    reduced.check(max_megapixels, colours=mode == "RGB")
    pixels = _decoded(reduced, mode)
    # by now the decoder's own pixels are gone
    turn = _TURNS.get(reduced.orientation)
    return np.ascontiguousarray(turn(pixels)) if turn else pixels


def _decoded(reduced: Reduced, mode: _Mode) -> Pixels:
    try:
        with _opened(reduced) as image:
            if reduced.kind == "JPEG" and mode == "L":
                # brightness is what the file holds: colours need not be made for it
                image.draft("L", None)
            image.load()
            return _pixels(image, mode)
    # damaged files make Pillow raise nearly every exception there is
    except Exception as error:
        raise malformed() from error


def _opened(reduced: Reduced) -> ImageFile:
    image = _DECODERS[reduced.kind](cast("IO[bytes]", _Pieces(reduced.pieces)))
    if image.size != (reduced.width, reduced.height):
        raise malformed()
    return image


class _Pieces(io.BufferedIOBase):
    """Pieces of a file as one, without a copy"""

    def __init__(self, pieces: Sequence[memoryview | bytes]) -> None:
        self._pieces = [memoryview(piece) for piece in pieces if len(piece)]
        self._ends = list(accumulate(map(len, self._pieces)))
        self._at = 0

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._ends[-1]}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            size = self._ends[-1]
        read: list[memoryview] = []
        number = bisect_right(self._ends, self._at)
        while size > 0 and number < len(self._pieces):
            piece = self._pieces[number]
            begin = len(piece) - (self._ends[number] - self._at)
            part = piece[begin : begin + size]
            read.append(part)
            self._at += len(part)
            size -= len(part)
            number += 1
        return b"".join(read)


def _pixels(image: Image.Image, mode: _Mode) -> Pixels:
    pixels = np.empty((image.height, image.width) if mode == "L" else (image.height, image.width, 3), np.uint8)
    ends = _range(image) if image.mode in {"I", "F"} else None
    for rows, band in _bands(image):
        pixels[rows] = _band(_spread(band, *ends) if ends else band, mode)
    return pixels


def _bands(image: Image.Image) -> Iterator[tuple[slice, Image.Image]]:
    height = max(1, _BAND_PIXELS // image.width)
    for top in range(0, image.height, height):
        bottom = min(top + height, image.height)
        yield slice(top, bottom), image.crop((0, top, image.width, bottom))


def _band(image: Image.Image, mode: _Mode) -> Pixels:
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        drawn = image if image.mode == "RGBA" else image.convert("RGBA")
        image = Image.new(mode, drawn.size, "white")
        image.paste(drawn.convert(mode), mask=drawn.getchannel("A"))
    return np.asarray(image.convert(mode))


def _range(image: Image.Image) -> tuple[float, float]:
    """32-bit levels have no agreed black and white: the darkest becomes black, the lightest white"""
    ends = [(levels.min(), levels.max()) for levels in (_halves(band) for _, band in _bands(image))]
    return min(low for low, _ in ends), max(high for _, high in ends)


def _spread(image: Image.Image, low: float, high: float) -> Image.Image:
    levels = _halves(image)
    levels -= low
    levels *= 255 / ((high - low) or 1)
    return Image.fromarray(np.rint(levels, out=levels).astype(np.uint8))


def _halves(image: Image.Image) -> npt.NDArray[np.float64]:
    """Halved, because the difference of two numbers need not be one"""
    levels = np.array(image, np.float64) / 2
    levels[~np.isfinite(levels)] = 0
    return levels
