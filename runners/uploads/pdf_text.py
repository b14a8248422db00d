"""
What a page of a PDF says itself, word by word, with the place of each.

PDFium gives characters in the order of the file, with spaces and ends of lines where it sees them. Lines keep that
order: programs write a page as it is read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from pypdfium2 import raw

from .document_limits import LIMITS
from .errors import UnreadableDocument
from .pdf_place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pypdfium2 as pdfium

    Floats = npt.NDArray[np.float64]

__all__ = ["Text", "TextLine", "TextWord", "text_of"]

FEW_WORDS: Final = 30
"""A stamp or a number on a page that was scanned, and no text of it"""
MOSTLY: Final = 0.5
"""Of a page, under one picture"""
UNKNOWN: Final = 0.2
"""Of its characters, that nobody can name: a font without their meaning"""

_HYPHEN, _NOTHING = 0x02, {0x00, 0xFFFE, 0xFFFF}
"""How PDFium writes a hyphen at the end of a line, and what it could not name"""
_ENDS = {0x0A, 0x0D}


class TextWord(NamedTuple):
    text: str
    corners: npt.NDArray[np.float32]
    """[4, 2], pixels, clockwise from the upper left one, as one reads"""


class TextLine(NamedTuple):
    text: str
    corners: npt.NDArray[np.float32]
    words: list[TextWord]


class Text(NamedTuple):
    width: int
    height: int
    lines: list[TextLine]


class _Letters(NamedTuple):
    codes: list[int]
    boxes: Floats
    """[N, 4]: left, bottom, right, top, as the page measures"""
    turns: list[int]
    """By how many quarters of a turn each is turned, clockwise"""


def text_of(page: pdfium.PdfPage, scale: float) -> Text | None:
    """None where the page has to be looked at: it says nothing, or nothing that matters"""
    letters = _letters(page)
    lines = [line for line in (_words(letters, places) for places in _lines(letters.codes)) if line]
    words = sum(map(len, lines))
    named = [code not in _NOTHING and not _is_private(code) for code in letters.codes]
    if not words or sum(named) < (1 - UNKNOWN) * len(named):
        return None
    if words < FEW_WORDS and _is_under_a_picture(page):
        return None
    place = Place(page, scale)
    return Text(place.width, place.height, [_line(letters, line, place) for line in lines])


def _letters(page: pdfium.PdfPage) -> _Letters:
    text = page.get_textpage()
    try:
        count = raw.FPDFText_CountChars(text)
        if count > LIMITS.characters:
            raise UnreadableDocument(f"expected a page of at most {LIMITS.characters} characters, got one of {count}")
        box = raw.FS_RECTF()
        boxes = np.zeros((max(count, 0), 4))
        codes, turns = list[int](), list[int]()
        for place in range(count):
            codes.append(raw.FPDFText_GetUnicode(text, place))
            turns.append(round(raw.FPDFText_GetCharAngle(text, place) * 2 / math.pi) % 4)
            # with the height of its font, so that lines of one font are of one height
            raw.FPDFText_GetLooseCharBox(text, place, box)
            boxes[place] = box.left, box.bottom, box.right, box.top
        return _Letters(codes, boxes, turns)
    finally:
        text.close()


def _lines(codes: list[int]) -> Iterator[range]:
    begin = 0
    for place, code in enumerate(codes):
        if code in _ENDS or code == _HYPHEN:
            yield range(begin, place + (code == _HYPHEN))
            begin = place + 1
    yield range(begin, len(codes))


def _words(letters: _Letters, places: range) -> list[range]:
    words, begin = list[range](), places.start
    for place in [*places, places.stop]:
        if place == places.stop or _is_space(letters.codes[place]):
            if begin < place:
                words.append(range(begin, place))
            begin = place + 1
    return words


def _line(letters: _Letters, line: list[range], place: Place) -> TextLine:
    words = [_word(letters, word, place) for word in line]
    whole = _box(letters, np.concatenate([np.arange(word.start, word.stop) for word in line]))
    corners = place.corners(whole, letters.turns[line[0].start])
    return TextLine(" ".join(word.text for word in words), corners, words)


def _word(letters: _Letters, word: range, place: Place) -> TextWord:
    # halves of characters, as UTF-16 has them, are put together
    units = "".join("-" if letters.codes[at] == _HYPHEN else chr(letters.codes[at]) for at in word)
    text = units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return TextWord(text, place.corners(_box(letters, np.arange(word.start, word.stop)), letters.turns[word.start]))


def _box(letters: _Letters, places: npt.NDArray[np.int64]) -> Floats:
    boxes = letters.boxes[places]
    return np.concatenate([boxes[:, :2].min(0), boxes[:, 2:].max(0)])


def _is_space(code: int) -> bool:
    return chr(code).isspace() or code in _NOTHING or (code < ord(" ") and code != _HYPHEN)


def _is_private(code: int) -> bool:
    return 0xE000 <= code <= 0xF8FF


def _is_under_a_picture(page: pdfium.PdfPage) -> bool:
    width, height = page.get_size()
    for picture in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        left, bottom, right, top = picture.get_bounds()
        if (right - left) * (top - bottom) >= MOSTLY * width * height:
            return True
    return False
