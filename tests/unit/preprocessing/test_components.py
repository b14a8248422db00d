"""The connected parts of a mask, against a search that goes from pixel to pixel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from preprocessing.components import components, connect

if TYPE_CHECKING:
    import numpy.typing as npt

MASKS = arrays(np.bool_, array_shapes(min_dims=2, max_dims=2, max_side=12))


def mask(*rows: str) -> npt.NDArray[np.bool_]:
    return np.array([[pixel == "#" for pixel in row] for row in rows])


def flooded(mask: npt.NDArray[np.bool_]) -> set[frozenset[tuple[int, int]]]:
    left = {(int(row), int(column)) for row, column in np.argwhere(mask)}
    parts = set()
    while left:
        part, new = set(), [left.pop()]
        while new:
            row, column = new.pop()
            part.add((row, column))
            beside = {(row + down, column + right) for down in (-1, 0, 1) for right in (-1, 0, 1)} & left
            left -= beside
            new.extend(beside)
        parts.add(frozenset(part))
    return parts


@given(MASKS)
def test_parts_are_those_that_a_flood_finds(mask: npt.NDArray[np.bool_]) -> None:
    found = components(mask)
    assert np.array_equal(found.labels > 0, mask)
    parts = [np.argwhere(found.labels == number + 1) for number in range(len(found.areas))]
    assert {frozenset(map(tuple, part.tolist())) for part in parts} == flooded(mask)
    for part, box, area in zip(parts, found.boxes, found.areas, strict=True):
        assert box.tolist() == [*part.min(axis=0)[::-1], *(part.max(axis=0)[::-1] + 1)]
        assert area == len(part)


def test_corners_touch_and_the_ends_of_neighbouring_rows_do_not() -> None:
    found = components(mask("#..#", ".#.#", "#..."))
    assert found.labels.tolist() == [[1, 0, 0, 2], [0, 1, 0, 2], [1, 0, 0, 0]]
    assert found.boxes.tolist() == [[0, 0, 2, 3], [3, 0, 4, 2]]
    assert found.areas.tolist() == [3, 2]


def test_arms_that_meet_late_are_one_part() -> None:
    found = components(mask("#.#.#.#", "#.#.#.#", "#.#.###", "#.#....", "###...."))
    assert found.areas.tolist() == [11, 7]


def test_an_empty_mask_has_no_parts() -> None:
    found = components(np.zeros((3, 5), np.bool_))
    assert found.labels.shape == (3, 5)
    assert (len(found.boxes), len(found.areas), int(found.labels.max())) == (0, 0, 0)


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_things_are_of_one_group_when_a_chain_of_pairs_joins_them(case: tuple[int, list[tuple[int, int]]]) -> None:
    things, pairs = case
    groups = [{thing} for thing in range(things)]
    for one, other in pairs:
        joined = groups[one] | groups[other]
        for thing in joined:
            groups[thing] = joined
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    numbers = connect(things, ends[:, 0], ends[:, 1])
    assert [{*np.flatnonzero(numbers == number).tolist()} for number in numbers] == groups
