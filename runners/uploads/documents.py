"""
From the bytes of a document to its pages: an image, a TIFF of many, or a PDF.

What always holds: for any bytes each function answers or raises UnreadableUpload, as long as its process lives; and
what reads a page looks at no other one, so that no reader of uploads is taken for long. See `document_limits`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import images, pdf_files
from .document_limits import LIMITS
from .errors import UnreadableDocument
from .image_files import begins_like_an_image, opening_of
from .pdf_text import Text, TextLine, TextWord, text_of
from .searchable import Picture, pdf_with_words, picture_of, pictures_with_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from .searchable import Layer

__all__ = [
    "DOTS_PER_INCH",
    "LIMITS",
    "Picture",
    "Text",
    "TextLine",
    "TextWord",
    "bound",
    "count_pages",
    "picture",
    "pixels",
    "searchable",
    "text",
]

DOTS_PER_INCH: Final = 200.0
"""At which letters of books have all the pixels that one reads them by"""


def count_pages(data: bytes) -> int:
    if pdf_files.is_pdf(data):
        return pdf_files.count(data)
    if not begins_like_an_image(data):
        raise UnreadableDocument(f"expected a PDF or an image ({', '.join(images.FORMATS)}), got {opening_of(data)}")
    pages = images.count_pages(data, LIMITS.pages)
    if pages > LIMITS.pages:
        raise UnreadableDocument(f"expected a document of at most {LIMITS.pages} pages, got more")
    return pages


def text(data: bytes, page: int = 0, dots_per_inch: float = DOTS_PER_INCH) -> Text | None:
    """What the page says itself, without a look at it; None where it has to be looked at"""
    if not pdf_files.is_pdf(data):
        return None
    with pdf_files.opened(data, page, flat=True) as opened:
        return text_of(opened, pdf_files.scale_of(opened, dots_per_inch))


def pixels(data: bytes, page: int = 0, dots_per_inch: float = DOTS_PER_INCH) -> npt.NDArray[np.uint8]:
    """[height, width, 3], red, green and blue; images keep the pixels that they have"""
    if not pdf_files.is_pdf(data):
        return images.decode_rgb(data, page=page, max_megapixels=LIMITS.megapixels)
    with pdf_files.opened(data, page) as opened:
        return pdf_files.rendered(opened, dots_per_inch)


def picture(data: bytes, page: int = 0) -> Picture | None:
    """How a page of an image or a TIFF looks, as a PDF holds it; None of a PDF, whose pages stay as they are"""
    return None if pdf_files.is_pdf(data) else picture_of(pixels(data, page))


def bound(pictures: Sequence[Picture], layers: Sequence[Layer | None], dots_per_inch: float = DOTS_PER_INCH) -> bytes:
    """
    A PDF of pictures, with the words that were read of each, where they are

    A layer is width and height of the page as it was shown, in pixels, and the words, each with its four corners.
    """
    return pictures_with_words(pictures, layers, dots_per_inch)


def searchable(data: bytes, layers: Sequence[Layer | None]) -> bytes:
    """A PDF as it is, with the words that were read of its pages; pages without a layer stay as they are"""
    return pdf_with_words(data, layers)
