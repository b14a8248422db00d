"""A document with the words that were read of it: what one sees stays, and words are found, marked and copied."""

from __future__ import annotations

import io
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from pypdfium2 import PdfMatrix

from . import images, pdf_files
from .document_limits import LIMITS
from .pdf_place import Place
from .pdf_writer import Picture, PlacedWord, Sheet, written

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pypdfium2 as pdfium

__all__ = ["Layer", "with_words"]

QUALITY = 85
"""Of pictures that are written as JPEG"""


Layer = tuple[int, int, "Sequence[tuple[str, Sequence[tuple[float, float]]]]"]
"""
Width and height of a page as it was shown, in pixels, and the words that were read of it; the corners of each go
clockwise from the upper left one, as one reads
"""


def with_words(data: bytes, layers: Sequence[Layer | None], dots_per_inch: float) -> bytes:
    """A PDF with a layer for each page; pages that have none are as they were"""
    return _over_pdf(data, layers) if pdf_files.is_pdf(data) else _of_images(data, layers, dots_per_inch)


def _of_images(data: bytes, layers: Sequence[Layer | None], dots_per_inch: float) -> bytes:
    sheets = list[Sheet]()
    for number, layer in enumerate(layers):
        picture = _picture(images.decode_rgb(data, page=number, max_megapixels=LIMITS.megapixels))
        width, height = (pdf_files.POINTS * side / dots_per_inch for side in (picture.width, picture.height))
        words = list[PlacedWord]()
        if layer:
            shown_width, shown_height, placed = layer
            scale = np.array([width / shown_width, -height / shown_height])
            words = [PlacedWord(text, np.array(corners) * scale + (0, height)) for text, corners in placed]
        sheets.append(Sheet((0, 0, width, height), words, picture))
    return written(sheets)


def _picture(pixels: npt.NDArray[np.uint8]) -> Picture:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=QUALITY)
    height, width = pixels.shape[:2]
    return Picture(file.getvalue(), width, height)


def _over_pdf(data: bytes, layers: Sequence[Layer | None]) -> bytes:
    read = {number: layer for number, layer in enumerate(layers) if layer and layer[2]}
    if not read:
        return data
    with pdf_files.document(data) as document:
        words = written([_sheet(document, number, layer) for number, layer in read.items()])
        with pdf_files.document(words) as over:
            for place, number in enumerate(read):
                _lay(over.page_as_xobject(place, document), document[number])
        file = io.BytesIO()
        document.save(file)
        return file.getvalue()


def _sheet(document: pdfium.PdfDocument, number: int, layer: Layer) -> Sheet:
    with closing(document[number]) as page:
        place = Place(page, 1)
    width, height, words = layer
    return Sheet(place.box, [PlacedWord(text, place.points(np.array(at), width, height)) for text, at in words])


def _lay(words: pdfium.PdfXObject, page: pdfium.PdfPage) -> None:
    with closing(words), closing(page):
        laid = words.as_pageobject()
        # PDFium has brought their lower left corner to where the page begins to count
        left, bottom, _, _ = page.get_bbox()
        laid.set_matrix(PdfMatrix().translate(left, bottom))
        page.insert_obj(laid)
        page.gen_content()
