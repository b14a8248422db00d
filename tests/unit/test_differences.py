"""How far arrays are apart"""

import ml_dtypes
import numpy as np
import pytest

from runners.differences import are_numbers, close, difference
from runners.tolerance import Difference, Tolerance

EXACT = Tolerance(0.0, 0.0)


@pytest.mark.parametrize(
    ("answered", "wanted", "absolute", "relative"),
    [
        ([1.0, 2.0], [1.0, 4.0], 2.0, 0.5),
        ([1.0, 2.0], [1.0, 2.0], 0.0, 0.0),
        ([1.0], [0.0], 1.0, 1.0),
        ([np.nan, 2.0], [np.nan, 4.0], 2.0, 0.5),
        ([np.inf], [np.inf], 0.0, 0.0),
        ([3.0, np.inf], [2.0, np.inf], 1.0, 0.5),
        ([3.0, 2.0], [2.0, np.inf], np.inf, np.inf),
        ([], [], 0.0, 0.0),
    ],
)
def test_the_largest_difference_alone_and_of_the_largest_number(
    answered: list[float], wanted: list[float], absolute: float, relative: float
) -> None:
    assert difference(np.array(answered), np.array(wanted)) == Difference(absolute, relative)


@pytest.mark.parametrize(("answered", "wanted"), [([np.nan], [1.0]), ([1.0], [np.nan]), ([1.0], [np.inf])])
def test_what_is_no_number_where_one_should_be_is_as_far_as_can_be(answered: list[float], wanted: list[float]) -> None:
    assert difference(np.array(answered), np.array(wanted)).absolute == np.inf
    assert not close(np.array(answered), np.array(wanted), EXACT)


def test_whole_numbers_that_a_float_does_not_tell_apart_differ() -> None:
    large, larger = np.array([2**60]), np.array([2**60 + 1])
    assert difference(large, larger).absolute == 1.0
    assert not close(large, larger, Tolerance(1.0, 1.0))


def test_texts_are_the_same_or_not() -> None:
    assert close(np.array([b"a"], np.object_), np.array([b"a"], np.object_), EXACT)
    assert not close(np.array([b"a"], np.object_), np.array([b"b"], np.object_), EXACT)


def test_the_largest_of_two_differences() -> None:
    assert Difference(1.0, 0.5) | Difference(2.0, 0.1) == Difference(2.0, 0.5)


def test_numbers_that_numpy_does_not_know_by_itself_are_numbers() -> None:
    bfloat16 = np.dtype(ml_dtypes.bfloat16)
    one, two = np.array([1.0, 2.0], bfloat16), np.array([1.0, 2.5], bfloat16)
    assert are_numbers(one)
    assert not are_numbers(np.array([b"text"], object))
    assert difference(two, one) == Difference(0.5, 0.25)
    assert not close(two, one, Tolerance())
    assert close(one, one, EXACT)
