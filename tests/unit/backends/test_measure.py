from typing import cast

import pytest
from kushi_native import OnnxModel

from runners.backends import measure
from runners.errors import EngineFailed
from tests.unit.text import config, fp32


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("max_batch_size: 4 input { name: 'X' dims: [ 3, -1 ] }", [1, 3, 32]),
        ("max_batch_size: 0 input { name: 'X' dims: [ 3, -1 ] }", [3, 32]),
        ("max_batch_size: 4 input { name: 'X' dims: [ 6 ] reshape { shape: [ 2, 3 ] } }", [1, 2, 3]),
        ("max_batch_size: 4 input { name: 'X' dims: [ 1 ] reshape { } }", [1]),
    ],
)
def test_a_model_is_measured_on_one_row_of_the_shape_that_it_sees(text: str, shape: list[int]) -> None:
    assert measure.example_shapes(config(text), [fp32("X", -1, -1)], 32) == {"X": shape}


def test_more_rows_are_rows_of_the_batch() -> None:
    text = "max_batch_size: 4 input { name: 'X' dims: [ 3, 2 ] }"
    assert measure.example_shapes(config(text), [fp32("X", -1, 3, 2)], rows=4) == {"X": [4, 3, 2]}


def test_a_scalar_is_measured_as_a_scalar_and_an_optional_input_not_at_all() -> None:
    text = "input { name: 'X' dims: 1 } input { name: 'Z' dims: 1 optional: true }"
    assert measure.example_shapes(config(text), [fp32("X")], 32) == {"X": []}


class Refusing:
    """A model that refuses variable dimensions of more than `largest`"""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def measure(self, shapes: dict[str, list[int]], runs: int) -> float:
        if max(shapes["X"]) > self.largest:
            raise EngineFailed("too large")
        return 0.25


@pytest.mark.parametrize(("largest", "seconds"), [(32, 0.25), (1, 0.25), (0, None)])
def test_a_refused_measurement_is_tried_with_ones_and_then_given_up(largest: int, seconds: float | None) -> None:
    variable = config("input { name: 'X' dims: -1 }")
    model = cast("OnnxModel", Refusing(largest))
    assert measure.measured_seconds(model, variable, [fp32("X", -1)]) == seconds
