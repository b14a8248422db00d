"""From a probability for each chunk of 16 ms, as the model `toneact` answers it, to the times of activity."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from runners.uploads.audio import RATE

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["CHUNK", "Segment", "activity"]

CHUNK = 256
"""Samples"""


class Segment(NamedTuple):
    """Seconds from the beginning of the recording"""

    start: float
    end: float


def activity(
    probabilities: npt.NDArray[np.float32],
    *,
    threshold: float = 0.5,
    gap_seconds: float = 0.048,
    shortest_seconds: float = 0.032,
) -> list[Segment]:
    """
    When something was heard, from one probability per chunk. Pauses up to `gap_seconds` are taken for no pause, then
    what is shorter than `shortest_seconds` is dropped.
    """
    active = np.concatenate([[False], probabilities.ravel() > threshold, [False]])
    starts, ends = np.flatnonzero(active[1:] != active[:-1]).reshape(-1, 2).T
    apart = starts[1:] - ends[:-1] > _count(gap_seconds)
    starts, ends = np.append(starts[:1], starts[1:][apart]), np.append(ends[:-1][apart], ends[-1:])
    long_enough = ends - starts >= _count(shortest_seconds)
    seconds = CHUNK / RATE
    return [
        Segment(float(start) * seconds, float(end) * seconds)
        for start, end in zip(starts[long_enough], ends[long_enough], strict=True)
    ]


def _count(seconds: float) -> float:
    """Chunks; rounded where the division is not exact in binary"""
    return round(seconds * RATE / CHUNK, 6)
