"""Lines in the order in which they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.order import in_order

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]


def page(*places: tuple[float, float, float], height: float = 20) -> Floats:
    """Left, top and width of each line"""
    corners = [[(x, y), (x + w, y), (x + w, y + height), (x, y + height)] for x, y, w in places]
    return np.array(corners, np.float32).reshape(-1, 4, 2)


def askew(corners: Floats, degrees: float) -> Floats:
    angle = np.radians(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    turned: Floats = (corners @ turn).astype(np.float32)
    return turned


ONE_COLUMN = [(50, 40 * row, 600) for row in range(8)]
TWO_COLUMNS = [
    (50, 0, 700),
    *((50, 60 + 30 * row, 300) for row in range(6)),
    *((450, 60 + 30 * row, 300) for row in range(6)),
]
A_ROW_OF_WORDS = [(50, 0, 100), (300, 3, 120), (500, 1, 90), (50, 60, 100), (300, 58, 120), (500, 61, 90)]


@pytest.mark.parametrize("places", [ONE_COLUMN, TWO_COLUMNS, A_ROW_OF_WORDS], ids=["one", "two", "words"])
@pytest.mark.parametrize("degrees", [0, 4, -4, 90, -90, 176, 180, -176])
def test_pages_are_read_down_their_columns(places: list[tuple[float, float, float]], degrees: float) -> None:
    corners = askew(page(*places), degrees)
    # lines are never quite parallel
    corners += np.random.default_rng(5).normal(0, 0.3, corners.shape).astype(np.float32)
    shuffled = np.random.default_rng(3).permutation(len(places))
    read = [int(shuffled[place]) for place in in_order(corners[shuffled])]
    assert read == list(range(len(places)))


def test_a_page_without_lines_has_no_order() -> None:
    assert in_order(page()) == []


PLACES = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900), st.integers(1, 500)), max_size=40)


@given(PLACES, st.integers(-80, 80))
def test_every_line_is_read_once(places: list[tuple[float, float, float]], degrees: float) -> None:
    assert sorted(in_order(askew(page(*places), degrees))) == list(range(len(places)))
