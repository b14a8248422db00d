"""
What clients get of the service, as its OpenAPI document shows it.

A module of its own, so that the process in which uploads are read need not import pydantic.
"""

# not as strings: BentoML and pydantic read the annotations
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from .crops import Crop
from .order import in_order
from .words import Spelled, corners_of

__all__ = ["Line", "Page", "Word"]

Corners = list[tuple[float, float]]

_CORNERS = "Pixels of the page, from the upper left corner clockwise, as one reads"


class Word(BaseModel):
    text: str
    confidence: float = Field(ge=0, le=1)
    corners: Corners = Field(description=_CORNERS)


class Line(Word):
    words: list[Word]

    @classmethod
    def of(cls, crop: Crop, spelled: Spelled) -> Self:
        words = [
            Word(
                text=word.text,
                confidence=round(word.confidence, 4),
                corners=_points(corners_of(crop.corners, word.begin, word.end)),
            )
            for word in spelled.words
        ]
        return cls(
            text=spelled.text, confidence=round(spelled.confidence, 4), corners=_points(crop.corners), words=words
        )


class Page(BaseModel):
    width: int = Field(description="Pixels")
    height: int
    text: str = Field(description="All lines, in the order in which they are read")
    lines: list[Line]

    @classmethod
    def of(cls, page: npt.NDArray[np.uint8], lines: Sequence[Line]) -> Self:
        places = in_order(np.array([line.corners for line in lines], np.float32).reshape(-1, 4, 2))
        ordered = [lines[place] for place in places]
        height, width = page.shape[:2]
        return cls(width=width, height=height, text="\n".join(line.text for line in ordered), lines=ordered)


def _points(corners: npt.NDArray[np.float32]) -> Corners:
    return [(x, y) for x, y in np.round(corners.astype(np.float64), 1).tolist()]
