"""
Pages of a PDF, through PDFium: how many there are, how they look, and what they say themselves.

PDFium reads what it is asked for, one page at a time. What it does beyond the bounds of `document_limits`, in memory
and in time, is bounded by the process that it works in: see `kushi.upload_reader`.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np
import pypdfium2 as pdfium
from pypdfium2 import raw

from .document_limits import LIMITS, malformed
from .errors import UnreadableDocument
from .image_files import begins_like_an_image

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

__all__ = ["POINTS", "count", "document", "is_pdf", "opened", "page_of", "rendered", "scale_of"]

_BEGIN, _BEGINS_WITHIN = b"%PDF-", 1024
_LOCKED: Final = {raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY}
POINTS = 72
"""Of an inch"""


def is_pdf(data: bytes) -> bool:
    """By what it begins with, where some programs put something in front; an image may say the word as well"""
    return data.find(_BEGIN, 0, _BEGINS_WITHIN) >= 0 and not begins_like_an_image(data)


def count(data: bytes) -> int:
    with document(data) as found:
        pages = len(found)
    if pages > LIMITS.pages:
        raise UnreadableDocument(f"expected a document of at most {LIMITS.pages} pages, got {pages}")
    return pages


@contextmanager
def opened(data: bytes, number: int, *, flat: bool = False) -> Iterator[pdfium.PdfPage]:
    """
    A page, the first of which is 0

    flat: what was filled in and noted on it is part of its text
    """
    with document(data) as found:
        if found.get_formtype() != raw.FORMTYPE_NONE:
            # what was filled in is drawn as well
            found.init_forms()
        if flat:
            with page_of(found, number) as page:
                if raw.FPDFPage_GetAnnotCount(page) > 0:
                    raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY)
        with page_of(found, number) as page:
            yield page


@contextmanager
def page_of(found: pdfium.PdfDocument, number: int) -> Iterator[pdfium.PdfPage]:
    try:
        page = found[number]
    except pdfium.PdfiumError as error:
        raise malformed() from error
    try:
        yield page
    finally:
        page.close()


def rendered(page: pdfium.PdfPage, dots_per_inch: float) -> npt.NDArray[np.uint8]:
    """[height, width, 3], red, green and blue"""
    bitmap = page.render(scale_of(page, dots_per_inch), rev_byteorder=True)
    try:
        return np.array(bitmap.to_numpy(), np.uint8)
    finally:
        bitmap.close()


def scale_of(page: pdfium.PdfPage, dots_per_inch: float) -> float:
    """Pixels by point"""
    longer, shorter = max(page.get_size()), min(page.get_size())
    if not (math.isfinite(longer) and shorter > 0):
        raise malformed()
    return float(min(dots_per_inch / POINTS, LIMITS.side / longer))


@contextmanager
def document(data: bytes) -> Iterator[pdfium.PdfDocument]:
    if len(data) > LIMITS.file_bytes:
        raise UnreadableDocument(f"expected a document of at most {LIMITS.file_bytes} bytes, got {len(data)}")
    try:
        found = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if error.err_code in _LOCKED:
            raise UnreadableDocument("the PDF is locked with a password: send it without one") from error
        raise malformed() from error
    try:
        yield found
    finally:
        found.close()
