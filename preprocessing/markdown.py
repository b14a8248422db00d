"""
A document as Markdown: headings, lists and paragraphs, by the size and the place of its lines.

What is larger than most of the text is a heading. Lines that follow one another as those of a paragraph do are joined.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .answers import Document, Line, Page

__all__ = ["of"]

LARGEST, LARGE = 1.6, 1.25
"""By the height of most lines"""
GAP = 0.9
"""Between two paragraphs, by the height of a line; from the foot of one line to the head of the next"""
FULL = 0.8
"""Of the longest line of its block: one that is shorter ends a paragraph, where the next one begins with a capital"""

_BULLET = re.compile(r"^[•◦▪‣●○■□–*·-]\s+")
_NUMBER = re.compile(r"^(\d{1,3})[.)]\s+")
_SPECIAL = re.compile(r"([\\`*_\[\]<>])")
_AT_BEGIN = re.compile(r"^(#{1,6}(?=\s)|[+>](?=\s)|-{3,}$|={3,}$)")


class _Place(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def width(self) -> float:
        return self.right - self.left


def of(document: Document) -> str:
    return "\n\n".join(filter(None, map(_page, document.pages))) + "\n"


def _page(page: Page) -> str:
    if not page.lines:
        return ""
    places = [_place(line) for line in page.lines]
    # a document may say that its letters have no height
    typical = float(np.median([place.height for place in places])) or 1.0
    blocks = _blocks(places, page.lines, typical)
    return "\n\n".join(_block(page.lines[begin:end], places[begin].height / typical) for begin, end in blocks)


def _place(line: Line) -> _Place:
    """Of what stands upright: lines that do not keep their own height, along the shorter side of their place"""
    corners = np.array(line.corners)
    height = float(np.linalg.norm(corners[3] - corners[0]))
    (left, top), (right, _) = corners.min(0), corners.max(0)
    return _Place(float(left), float(top), float(right), float(top) + height)


def _blocks(places: Sequence[_Place], lines: Sequence[Line], typical: float) -> list[tuple[int, int]]:
    """Where each begins and ends"""
    begins, longest = [0], places[0].width
    for at in range(1, len(places)):
        pair = places[at - 1], places[at]
        if _is_new(pair, longest, lines[at - 1].text, lines[at].text, typical):
            begins.append(at)
            longest = 0.0
        longest = max(longest, places[at].width)
    return list(zip(begins, [*begins[1:], len(places)], strict=True))


def _is_new(pair: tuple[_Place, _Place], longest: float, before: str, text: str, typical: float) -> bool:
    """Whether a line begins another block than that of the line before it; longest: of that block"""
    previous, last = pair
    if _BULLET.match(text) or _NUMBER.match(text) or _level(last.height / typical) != _level(previous.height / typical):
        return True
    # in the next column, or below a gap
    if last.top < previous.top or last.top - previous.bottom > GAP * typical:
        return True
    ends_early = previous.width < FULL * longest
    return ends_early and before.rstrip().endswith((".", ":", "!", "?", "。")) and text[:1].isupper()


def _block(lines: Sequence[Line], height: float) -> str:
    parts = [lines[0].text]
    for line in lines[1:]:
        # a word that was cut at the end of a line is one
        last = parts[-1]
        cut = len(last) > 1 and last.endswith("-") and last[-2].isalpha() and line.text[:1].islower()
        parts[-1:] = [last[:-1] if cut else f"{last} ", line.text]
    text = "".join(parts)
    if level := _level(height):
        return f"{'#' * level} {_escaped(text)}"
    if bullet := _BULLET.match(text):
        return f"- {_escaped(text[bullet.end() :])}"
    if number := _NUMBER.match(text):
        return f"{number[1]}. {_escaped(text[number.end() :])}"
    return _AT_BEGIN.sub(r"\\\1", _escaped(text))


def _level(height: float) -> int:
    """Of a heading; 0 of text"""
    return 1 if height >= LARGEST else 2 if height >= LARGE else 0


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
