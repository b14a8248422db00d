"""Engines of Python's that begin a batch and answer it later, as those whose work a GPU does."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from runners.backends import ModelFailed
from runners.errors import ConfigInvalid, EngineFailed, InvalidInput
from tests import conformance
from tests.integration.test_conformance import MODELS
from tests.python_models import Answer, served
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Array = NDArray[Any]
WAIT_S = 30.0


class Later:
    """What is computed when somebody waits for it"""

    def __init__(self, compute: Callable[[], Any], gate: threading.Event | None = None) -> None:
        self._compute = compute
        self._gate = gate

    def wait(self) -> Answer:
        if self._gate:
            assert self._gate.wait(WAIT_S)
        return self._compute()


class Late:
    """An engine around a function of the inputs, which are copied: they are there for the call alone"""

    concurrent = False
    answers_later = True

    def __init__(self, function: Callable[..., Any], gates: Sequence[threading.Event] = ()) -> None:
        self.function = function
        self.gates = list(gates)
        self.begun = threading.Semaphore(0)
        self.count = 0

    def execute(self, inputs: Sequence[Any], wanted: Sequence[bool]) -> Later:
        arrays = [None if array is None else np.array(array) for array in inputs]
        gate = self.gates[self.count] if self.count < len(self.gates) else None
        self.count += 1
        self.begun.release()

        def compute() -> list[Any]:
            return [output if asked else None for output, asked in zip(self.function(*arrays), wanted, strict=True)]

        return Later(compute, gate)


def add_sub(a: Array, b: Array) -> list[Any]:
    return [a + b, a - b]


class Subject:
    def engine(self, model: str, inputs: Sequence[conformance.Tensor], outputs: Sequence[conformance.Tensor]) -> Late:
        return Late(MODELS[model])

    def takes(self, datatype: str) -> bool:
        return True


# what is found out later fails its batch as a whole, and its requests are unanswered when the call comes back
OF_THOSE_THAT_ANSWER_AT_ONCE = {
    "an_engine_error_fails_the_request_that_caused_it_and_no_other",
    "requests_of_a_failed_batch_that_nobody_waits_for_do_not_run_again",
    "the_capability_is_true",
}
CASES = [case for case in conformance.CASES if case not in OF_THOSE_THAT_ANSWER_AT_ONCE]


@pytest.mark.parametrize("case", CASES)
def test_an_engine_that_answers_later_conforms(case: str) -> None:
    conformance.run(case, Subject())


def test_a_batch_begins_while_the_one_before_is_waited_for_and_a_third_one_does_not() -> None:
    gates = [threading.Event() for _ in range(3)]
    engine = Late(add_sub, gates)
    with served(engine) as model, ThreadPoolExecutor(3) as pool:
        waiting = []
        for number in range(3):
            row = np.full((1, 2), number, np.float32)
            waiting.append(pool.submit(model.ask, row, row))
            if number < 2:
                assert engine.begun.acquire(timeout=WAIT_S)
        assert engine.count == 2
        gates[0].set()
        assert waiting[0].result(WAIT_S)["SUM"].tolist() == [[0, 0]]
        assert engine.begun.acquire(timeout=WAIT_S)
        assert not waiting[1].done()
        gates[1].set()
        gates[2].set()
        assert [one.result(WAIT_S)["SUM"].tolist() for one in waiting[1:]] == [[[2, 2]], [[4, 4]]]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (EngineFailed("out of luck"), "out of luck"),
        (ModelFailed("the device is gone"), "the device is gone"),
        (ValueError("bad weather"), "model 'm' raised ValueError: bad weather"),
    ],
)
def test_what_is_raised_later_ends_the_batch_and_no_other(fault: Exception, text: str) -> None:
    faults = [fault]

    def function(a: Array, b: Array) -> list[Any]:
        if faults:
            raise faults.pop()
        return add_sub(a, b)

    with served(Late(function)) as model:
        with pytest.raises(EngineFailed, match=text):
            model.ask_two_rows()
        assert model.ask_two_rows()["SUM"].tolist() == [[2, 2], [2, 2]]


def test_what_is_raised_at_once_is_tried_again_for_each_request_alone() -> None:
    """Data of one request may be the reason, as shapes that no profile takes"""

    class Picky(Late):
        def execute(self, inputs: Sequence[Any], wanted: Sequence[bool]) -> Later:
            if (inputs[0] == 13).any():
                raise InvalidInput("13 is not taken")
            return super().execute(inputs, wanted)

    from tests.integration.test_python_engine import TOGETHER  # noqa: PLC0415 - of this test

    with served(Picky(add_sub), text=TOGETHER) as model, ThreadPoolExecutor(2) as pool:

        def ask(number: int) -> str:
            row = np.full((1, 2), number, np.float32)
            try:
                return str(model.ask(row, row)["SUM"].tolist())
            except InvalidInput as error:
                return str(error)

        assert list(pool.map(ask, [13, 4])) == ["13 is not taken", "[[8.0, 8.0]]"]


@pytest.mark.parametrize("answer", [None, [np.zeros((2, 2), np.float32)], "nothing"])
def test_an_answer_that_is_none_is_an_error(answer: Answer) -> None:
    class Wrong(Late):
        def execute(self, inputs: Sequence[Any], wanted: Sequence[bool]) -> Answer:
            return answer

    with served(Wrong(add_sub)) as model, pytest.raises(EngineFailed, match=r"wait|answered"):
        model.ask_two_rows()


def test_an_engine_for_all_instances_cannot_answer_later() -> None:
    class Shared(Late):
        concurrent = True

    with pytest.raises(ConfigInvalid, match="answers later cannot be concurrent"), served(Shared(add_sub)):
        pass


def test_an_engine_goes_with_its_model() -> None:
    engine = Late(add_sub)
    gone = weakref.ref(engine)
    with served(engine) as model:
        model.ask_two_rows()
    del engine, model
    eventually(lambda: gone() is None, "the engine is let go")
