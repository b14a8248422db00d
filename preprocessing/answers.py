"""
What clients get of the service, as its OpenAPI document shows it.

A module of its own, so that the process in which uploads are read need not import pydantic.
"""

# not as strings: BentoML and pydantic read the annotations
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from .crops import Crop
from .order import in_order
from .words import Spelled, corners_of

if TYPE_CHECKING:
    from runners.uploads.documents import Text, TextLine

__all__ = ["Document", "Line", "Page", "Seconds", "Word"]

Corners = list[tuple[float, float]]

_CORNERS = "Pixels of the page, from the upper left corner clockwise, as one reads"


class Word(BaseModel):
    text: str
    confidence: float = Field(ge=0, le=1)
    corners: Corners = Field(description=_CORNERS)


class Line(Word):
    words: list[Word]

    @classmethod
    def read(cls, crop: Crop, spelled: Spelled) -> Self:
        words = [
            _word(word.text, word.confidence, corners_of(crop.corners, word.begin, word.end)) for word in spelled.words
        ]
        return cls(words=words, **dict(_word(spelled.text, spelled.confidence, crop.corners)))

    @classmethod
    def said(cls, line: "TextLine") -> Self:
        words = [_word(word.text, 1, word.corners) for word in line.words]
        return cls(words=words, **dict(_word(line.text, 1, line.corners)))


class Seconds(BaseModel):
    """How long each step took, by the clock: other pages may have been read at the same time"""

    open: float = Field(description="Until the page was there as pixels, or as text taken from the file")
    find: float = Field(default=0, description="Then until its lines were found")
    read: float = Field(default=0, description="Then until they were read")

    @classmethod
    def of(cls, *, open: float, find: float = 0, read: float = 0) -> Self:  # noqa: A002 - as it is called
        return cls(open=round(open, 4), find=round(find, 4), read=round(read, 4))


class Page(BaseModel):
    number: int = Field(description="1 for the first")
    width: int = Field(description="Pixels")
    height: int
    source: Literal["pixels", "text"] = Field(description="Whether it was looked at, or says its text itself")
    text: str = Field(description="All lines, in the order in which they are read")
    lines: list[Line]
    seconds: Seconds

    @classmethod
    def read(cls, number: int, page: npt.NDArray[np.uint8], lines: Sequence[Line], seconds: Seconds) -> Self:
        height, width = page.shape[:2]
        places = in_order(np.array([line.corners for line in lines], np.float32).reshape(-1, 4, 2))
        return cls._of(number, (width, height), "pixels", [lines[place] for place in places], seconds)

    @classmethod
    def said(cls, number: int, text: "Text", seconds: Seconds) -> Self:
        return cls._of(number, (text.width, text.height), "text", [Line.said(line) for line in text.lines], seconds)

    def layer(self) -> tuple[int, int, list[tuple[str, Corners]]] | None:
        """What was read of its pixels, as `documents.searchable` takes it"""
        words = [(word.text, word.corners) for line in self.lines for word in line.words]
        return (self.width, self.height, words) if self.source == "pixels" else None

    @classmethod
    def _of(
        cls, number: int, size: tuple[int, int], source: Literal["pixels", "text"], lines: list[Line], seconds: Seconds
    ) -> Self:
        (width, height), text = size, "\n".join(line.text for line in lines)
        return cls(
            number=number + 1, width=width, height=height, source=source, text=text, lines=lines, seconds=seconds
        )


class Document(BaseModel):
    text: str = Field(description="Of all pages, with an empty line between two")
    pages: list[Page]

    @classmethod
    def of(cls, pages: Iterable[Page]) -> Self:
        pages = list(pages)
        return cls(text="\n\n".join(page.text for page in pages if page.text), pages=pages)


def _word(text: str, confidence: float, corners: npt.NDArray[np.float32]) -> Word:
    points = [(x, y) for x, y in np.round(corners.astype(np.float64), 1).tolist()]
    return Word(text=text, confidence=round(confidence, 4), corners=points)
