"""Times of activity from a probability for each chunk."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.small_service.sounds import Segment, activity

if TYPE_CHECKING:
    import numpy.typing as npt


def heard(pattern: str) -> npt.NDArray[np.float32]:
    return np.array([0.9 if letter == "#" else 0.1 for letter in pattern], np.float32)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", []),
        ("....", []),
        ("####", [(0, 4)]),
        ("..###.....##", [(2, 5), (10, 12)]),
        ("##...##", [(0, 7)]),
        ("##....##", [(0, 2), (6, 8)]),
        ("#....##", [(5, 7)]),
        ("#.#", [(0, 3)]),
        ("...#...", []),
    ],
)
def test_segments_join_over_short_pauses_and_short_ones_are_dropped(
    pattern: str, expected: list[tuple[int, int]]
) -> None:
    segments = activity(heard(pattern))
    assert segments == [Segment(start * 0.016, end * 0.016) for start, end in expected]


def test_every_chunk_above_the_threshold_counts_when_asked_to() -> None:
    probabilities = np.array([[0.2], [0.4], [0.2], [0.6]], np.float32)
    exact = activity(probabilities, threshold=0.3, gap_seconds=0, shortest_seconds=0)
    assert exact == [Segment(0.016, 0.032), Segment(0.048, 0.064)]


@given(arrays(np.float32, st.integers(0, 60), elements=st.floats(0, 1, width=32)))
def test_segments_are_in_order_apart_and_cover_what_is_active(probabilities: npt.NDArray[np.float32]) -> None:
    segments = activity(probabilities, shortest_seconds=0)
    covered = np.zeros(len(probabilities), np.bool_)
    for start, end in segments:
        covered[round(start / 0.016) : round(end / 0.016)] = True
    assert np.all(covered[probabilities > 0.5])
    assert all(later.start - earlier.end > 0.048 for earlier, later in pairwise(segments))
