"""A document with the words that were read of it: what one sees stays, and words are found, marked and copied."""

from __future__ import annotations

import io
import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image
from pypdfium2 import PdfiumError, raw

from . import pdf_files
from .document_limits import malformed
from .pdf_place import Place
from .pdf_text import own_text
from .pdf_writer import Picture, PlacedWord, Sheet, written

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pypdfium2 as pdfium

__all__ = ["Layer", "Picture", "pdf_with_words", "picture_of", "pictures_with_words"]

QUALITY: Final = 85
"""Of pictures that are written as JPEG"""
GREY, COLOURS = "/Filter/DCTDecode/ColorSpace/DeviceGray", "/Filter/DCTDecode/ColorSpace/DeviceRGB"
BLACK_AND_WHITE: Final = "/Filter/FlateDecode/ColorSpace/DeviceGray/BitsPerComponent 1"

Layer = tuple[int, int, "Sequence[tuple[str, Sequence[tuple[float, float]]]]"]
"""
Width and height of a page as it was shown, in pixels, and the words that were read of it; the corners of each go
clockwise from the upper left one, as one reads
"""


def picture_of(pixels: npt.NDArray[np.uint8]) -> Picture:
    """Scans in black and white stay sharp and small"""
    height, width = pixels.shape[:2]
    red = pixels[:, :, 0]
    if not (np.array_equal(red, pixels[:, :, 1]) and np.array_equal(red, pixels[:, :, 2])):
        return Picture(_jpeg(pixels), width, height, f"{COLOURS}/BitsPerComponent 8")
    if np.isin(red, (0, 255)).all():
        return Picture(zlib.compress(np.packbits(red > 0, axis=1).tobytes()), width, height, BLACK_AND_WHITE)
    return Picture(_jpeg(np.ascontiguousarray(red)), width, height, f"{GREY}/BitsPerComponent 8")


def pictures_with_words(pictures: Sequence[Picture], layers: Sequence[Layer | None], dots_per_inch: float) -> bytes:
    sheets = list[Sheet]()
    for picture, layer in zip(pictures, layers, strict=True):
        width, height = (pdf_files.POINTS * side / dots_per_inch for side in (picture.width, picture.height))
        words = list[PlacedWord]()
        if layer:
            shown_width, shown_height, placed = layer
            scale = np.array([width / shown_width, -height / shown_height])
            words = [PlacedWord(text, np.array(corners) * scale + (0, height)) for text, corners in placed]
        sheets.append(Sheet((0, 0, width, height), words, picture))
    return written(sheets)


def pdf_with_words(data: bytes, layers: Sequence[Layer | None]) -> bytes:
    with pdf_files.document(data) as document:
        read = {number: layer for number, layer in enumerate(layers) if layer}
        sheets = {number: sheet for number, layer in read.items() if (sheet := _sheet(document, number, layer)).words}
        if not sheets:
            return data
        with pdf_files.document(written(list(sheets.values()))) as over:
            for place, number in enumerate(sheets):
                _lay(over.page_as_xobject(place, document), document, number)
        file = io.BytesIO()
        try:
            document.save(file)
        except PdfiumError as error:
            raise malformed() from error
        return file.getvalue()


def _jpeg(pixels: npt.NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def _sheet(document: pdfium.PdfDocument, number: int, layer: Layer) -> Sheet:
    width, height, words = layer
    with pdf_files.page_of(document, number) as page:
        place = Place(page, 1)
        own = own_text(page, width / page.get_width())
    missing = _missing(words, [] if own is None else [word.corners for line in own.lines for word in line.words])
    return Sheet(place.box, [PlacedWord(text, place.points(np.array(at), width, height)) for text, at in missing])


def _missing(
    words: Sequence[tuple[str, Sequence[tuple[float, float]]]], own: Sequence[npt.NDArray[np.float32]]
) -> list[tuple[str, Sequence[tuple[float, float]]]]:
    """Those that the page does not say itself where they were seen: they would be found twice"""
    if not own:
        return list(words)
    corners = np.array(own)
    low, high = corners.min(1), corners.max(1)
    return [word for word in words if not ((low <= (middle := np.mean(word[1], 0))) & (middle <= high)).all(1).any()]


def _lay(words: pdfium.PdfXObject, document: pdfium.PdfDocument, number: int) -> None:
    with closing(words), pdf_files.page_of(document, number) as page:
        laid = words.as_pageobject()
        # PDFium has brought their lower left corner to where the page begins to count
        left, bottom, _, _ = page.get_bbox()
        raw.FPDFPageObj_Transform(laid, 1, 0, 0, 1, left, bottom)
        page.insert_obj(laid)
        page.gen_content()
