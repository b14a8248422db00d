"""
From what the model `lines` answers for a line to its words, each with its place in the line.

The recogniser looks at a line through windows that follow one another, and names for each the character in it, or none;
one that it sees in several windows in a row is one character.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Indices = npt.NDArray[np.int64]
    Shares = npt.NDArray[np.float32]

__all__ = ["LEAST_CONFIDENCE", "Spelled", "Word", "characters", "corners_of", "spelled"]

LEAST_CONFIDENCE = 0.5
"""What is less is no text, but a picture or a line that was drawn"""
NONE = 0
"""Of the characters that the recogniser knows"""


class Word(NamedTuple):
    text: str
    confidence: float
    begin: float
    """As a share of the line's length"""
    end: float


class Spelled(NamedTuple):
    text: str
    confidence: float
    words: list[Word]


def characters(text: str) -> list[str]:
    """By the numbers that the recogniser has for them, from a file with a line for each"""
    return ["", *text.removesuffix("\n").split("\n")]


def spelled(ids: Indices, shares: Shares, known: Sequence[str], *, filled: float = 1.0) -> Spelled | None:
    """
    None where there is nothing to read

    ids, shares: [windows], the character in each, and how sure that is
    filled: the share of the windows that the line takes; the others see nothing
    """
    new = np.concatenate([[True], ids[1:] != ids[:-1]])
    at = np.flatnonzero(new & (ids != NONE))
    letters, sure = [known[number] for number in ids[at]], shares[at]
    text = "".join(letters)
    if not text.strip() or (confidence := float(sure.mean())) < LEAST_CONFIDENCE:
        return None
    windows = len(ids) * filled
    words = [
        Word(
            "".join(letters[first:last]),
            float(sure[first:last].mean()),
            _middle(at, first - 1, first, windows),
            _middle(at, last - 1, last, windows),
        )
        for first, last in _runs(letters)
    ]
    return Spelled(" ".join(word.text for word in words), confidence, words)


def _runs(letters: Sequence[str]) -> list[tuple[int, int]]:
    """Where words begin and end"""
    written = np.array([not letter.isspace() for letter in letters])
    steps = np.diff(np.concatenate([[False], written, [False]]).astype(np.int8))
    return list(zip(np.flatnonzero(steps == 1).tolist(), np.flatnonzero(steps == -1).tolist(), strict=True))


def _middle(at: Indices, one: int, other: int, windows: float) -> float:
    """Between two characters that follow one another, or the end of the line"""
    if one < 0:
        return 0.0
    if other >= len(at):
        return 1.0
    return min(1.0, (float(at[one]) + float(at[other]) + 1) / 2 / windows)


def corners_of(line: npt.NDArray[np.float32], begin: float, end: float) -> npt.NDArray[np.float32]:
    """Of a part of a line, clockwise from the upper left one, as those of the line are: [4, 2]"""
    upper, lower = line[:2], line[:1:-1]
    places = np.array([[1 - begin, begin], [1 - end, end]], np.float32)
    return np.concatenate([places @ upper, (places @ lower)[::-1]])
