"""The suite that every engine passes, on engines written with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import conformance

Array = NDArray[Any]


def identity(given: Array) -> list[Array]:
    return [given]


def sum_and_difference(a: Array, b: Array) -> list[Array]:
    return [a + b, a - b]


def optional_addend(a: Array, b: Array | None) -> list[Array]:
    return [a + (np.full(1, 10, a.dtype) if b is None else b)]


def small_numbers_only(numbers: Array) -> list[Array]:
    return [np.arange(8)[numbers]]


def nonzero(numbers: Array) -> list[Array]:
    return [np.stack(np.nonzero(numbers))]


MODELS: Final[dict[str, Callable[..., list[Array]]]] = {
    "Identity": identity,
    "HandThrough": identity,
    "SumAndDifference": sum_and_difference,
    "OptionalAddend": optional_addend,
    "SmallNumbersOnly": small_numbers_only,
    "NonZero": nonzero,
}


class Engine:
    concurrent = True

    def __init__(self, model: Callable[..., list[Array]]) -> None:
        self.model = model

    def execute(self, inputs: Sequence[Array | None], wanted: Sequence[bool]) -> list[Array | None]:
        computed = self.model(*inputs)
        return [output if asked else None for output, asked in zip(computed, wanted, strict=True)]


class Subject:
    def engine(self, model: str, inputs: Sequence[conformance.Tensor], outputs: Sequence[conformance.Tensor]) -> Engine:
        return Engine(MODELS[model])

    def takes(self, datatype: str) -> bool:
        return True


class Alone(Subject):
    """The same with an engine for each instance."""

    def engine(self, model: str, inputs: Sequence[conformance.Tensor], outputs: Sequence[conformance.Tensor]) -> Engine:
        engine = super().engine(model, inputs, outputs)
        engine.concurrent = False
        return engine


@pytest.mark.parametrize("case", conformance.CASES)
def test_an_engine_written_with_numpy_conforms(case: str) -> None:
    conformance.run(case, Subject())


def test_an_engine_that_runs_one_batch_at_a_time_conforms_too() -> None:
    conformance.run("slots_run_side_by_side", Alone())
