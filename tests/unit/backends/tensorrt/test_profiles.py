"""Which profile a batch runs with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given as examples
from hypothesis import strategies

from runners.backends.tensorrt.plan import Range
from runners.backends.tensorrt.profiles import choose, largest_batch, listed
from runners.errors import ConfigInvalid, InvalidInput

from .plans import given, made, plan

SMALL = ((1, 8), (2, 8), (4, 8))
LARGE = ((1, 8), (16, 8), (32, 8))
TWO = plan(given("X", (-1, 8), SMALL, LARGE), made("Y", (-1, 8)))


def test_without_any_a_group_has_the_first_profile() -> None:
    assert listed([], TWO, "g") == (0,)
    assert listed(["1", "0", "1"], TWO, "g") == (1, 0)


@pytest.mark.parametrize("text", ["2", "-1", "one", "", "٢"])
def test_a_profile_that_is_not_there_is_named(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="profile"):
        listed([text], TWO, "g")


@pytest.mark.parametrize(("rows", "profile"), [(1, 0), (2, 0), (4, 0), (5, 1), (16, 1), (32, 1)])
def test_the_nearest_profile_that_fits_is_chosen(rows: int, profile: int) -> None:
    assert choose(TWO, (0, 1), {"X": (rows, 8)}, {}, "m_0") == profile


def test_of_equally_near_ones_the_first_is_chosen() -> None:
    same = plan(given("X", (-1,), ((1,), (2,), (8,)), ((1,), (6,), (8,))))
    assert choose(same, (0, 1), {"X": (4,)}, {}, "m_0") == 0
    assert choose(same, (1, 0), {"X": (4,)}, {}, "m_0") == 1


def test_what_fits_no_profile_is_an_error_in_the_words_of_triton() -> None:
    with pytest.raises(InvalidInput) as raised:
        choose(TWO, (0,), {"X": (5, 8)}, {}, "m_0")
    assert str(raised.value) == (
        "request specifies invalid shape for input 'X' for m_0. Error details: model expected the shape of dimension 0 "
        "to be between 1 and 4 but received 5"
    )
    with pytest.raises(InvalidInput, match=r"failed to find any Optimization Profile among \[0\[0\] 1\[1\]\]"):
        choose(TWO, (0, 1), {"X": (33, 8)}, {}, "m_0")
    with pytest.raises(InvalidInput, match="expected 2 dimensions but received 3"):
        choose(TWO, (0,), {"X": (1, 8, 1)}, {}, "m_0")


def test_values_of_shape_tensors_count_too() -> None:
    tensor = replace(
        given("S", (2,), ((2,), (2,), (2,)), ((2,), (2,), (2,)), datatype="INT32"),
        values=(Range((1, 1), (2, 2), (4, 4)), Range((1, 1), (8, 8), (9, 9))),
    )
    both = plan(tensor)
    assert choose(both, (0, 1), {"S": (2,)}, {"S": (2, 3)}, "m_0") == 0
    assert choose(both, (0, 1), {"S": (2,)}, {"S": (5, 3)}, "m_0") == 1
    with pytest.raises(InvalidInput, match="invalid values for input 'S'"):
        choose(both, (0,), {"S": (2,)}, {"S": (0, 3)}, "m_0")


def test_the_largest_batch_is_that_of_the_profiles_that_are_used() -> None:
    assert largest_batch(TWO, (0,)) == 4
    assert largest_batch(TWO, (0, 1)) == 32
    assert largest_batch(plan(given("X", ())), (0,)) == 0


@examples(strategies.integers(1, 32), strategies.permutations((0, 1)))
def test_what_is_chosen_always_takes_the_batch(rows: int, profiles: list[int]) -> None:
    chosen = choose(TWO, profiles, {"X": (rows, 8)}, {}, "m_0")
    allowed = TWO.inputs[0].ranges[chosen]
    assert allowed.least[0] <= rows <= allowed.most[0]
