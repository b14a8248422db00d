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

__all__ = ["Text", "TextLine", "TextWord", "own_text", "text_of"]

THIN: Final = 0.04
"""Of a page, under its words: a stamp, a number or the head of a fax on a page that was scanned, and no text of it"""
MOSTLY: Final = 0.5
"""Of a page, under pictures"""
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
    found = own_text(page, scale)
    if found is None or (_share_of_words(found) < THIN and _is_under_pictures(page)):
        return None
    return found


def own_text(page: pdfium.PdfPage, scale: float) -> Text | None:
    """None where nobody can read it"""
    letters = _letters(page)
    named = [code not in _NOTHING and not _is_private(code) for code in letters.codes]
    if sum(named) < (1 - UNKNOWN) * len(named):
        return None
    place = Place(page, scale)
    words = [(number, word) for number, line in enumerate(_lines(letters.codes)) for word in _words(letters, line)]
    if not words:
        return None
    spans = np.array([(word.start, word.stop) for _, word in words])
    boxes = _boxes(letters.boxes, spans)
    corners = place.corners(boxes, np.array(letters.turns)[spans[:, 0]])
    size = (place.width, place.height)
    # what is written beside the page nobody sees
    seen = ((corners.mean(1) >= 0) & (corners.mean(1) <= size)).all(1)
    lines = list[TextLine]()
    at = np.flatnonzero(seen)
    for begin, end in _runs(np.array([number for number, _ in words])[at]):
        members = at[begin:end]
        of_line = [TextWord(_text(letters, words[member][1]), corners[member]) for member in members]
        whole = _boxes(boxes[members], np.array([(0, len(members))]))
        around = place.corners(whole, np.array([letters.turns[spans[members[0], 0]]]))[0]
        lines.append(TextLine(" ".join(word.text for word in of_line), around, of_line))
    return Text(*size, lines) if lines else None


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


def _text(letters: _Letters, word: range) -> str:
    # halves of characters, as UTF-16 has them, are put together
    units = "".join("-" if letters.codes[at] == _HYPHEN else chr(letters.codes[at]) for at in word)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _boxes(boxes: Floats, spans: npt.NDArray[np.int64]) -> Floats:
    """Around the boxes of each span: [N, 4]"""
    # one more, so that the last span ends within
    boxes = np.concatenate([boxes, boxes[-1:]])
    ends = spans.ravel()
    low = np.minimum.reduceat(boxes[:, :2], ends)[::2]
    high = np.maximum.reduceat(boxes[:, 2:], ends)[::2]
    return np.concatenate([low, high], 1)


def _runs(numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Where equal ones begin and end"""
    ends = np.flatnonzero(np.diff(numbers)) + 1
    return zip([0, *ends.tolist()], [*ends.tolist(), len(numbers)], strict=True) if len(numbers) else iter(())


def _is_space(code: int) -> bool:
    return chr(code).isspace() or code in _NOTHING or (code < ord(" ") and code != _HYPHEN)


def _is_private(code: int) -> bool:
    return 0xE000 <= code <= 0xF8FF


def _share_of_words(text: Text) -> float:
    corners = np.array([word.corners for line in text.lines for word in line.words])
    across, down = np.ptp(corners, axis=1).T
    return float((across * down).sum() / (text.width * text.height))


def _is_under_pictures(page: pdfium.PdfPage) -> bool:
    """All of them together: some programs write a scan in strips"""
    width, height = page.get_size()
    left = MOSTLY * width * height
    for picture in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        begin, bottom, end, top = picture.get_bounds()
        left -= min(end - begin, width) * min(top - bottom, height)
        if left <= 0:
            return True
    return False
