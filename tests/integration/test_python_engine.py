"""What the native core does with engines that are objects of Python's, well-behaved or not."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from runners import LogOptions
from runners.backends import ModelFailed
from runners.errors import ConfigInvalid, EngineFailed
from tests.python_models import ADD_SUB, Answer, Plain, served

ROOT: Final = Path(__file__).resolve().parents[2]
Array = NDArray[Any]


def add_sub(a: Array, b: Array) -> list[Array]:
    return [a + b, a - b]


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


class Once:
    """An engine whose first batch meets a fault, and no other."""

    concurrent = True

    def __init__(self, fault: BaseException) -> None:
        self.fault: BaseException | None = fault

    def execute(self, inputs: list[Any], wanted: list[bool]) -> list[Array]:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        return add_sub(*inputs)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (ValueError("bad weather"), "model 'm' raised ValueError: bad weather"),
        (MemoryError(), "model 'm' raised MemoryError"),
        (SystemExit(3), "model 'm' raised SystemExit: 3"),
        (KeyboardInterrupt(), "model 'm' raised KeyboardInterrupt"),
        (RecursionError("too deep"), "model 'm' raised RecursionError: too deep"),
        (np.linalg.LinAlgError("singular"), "model 'm' raised numpy.linalg.LinAlgError: singular"),
        (UnprintableError(), "UnprintableError, which cannot be printed"),
        (EngineFailed("out of ideas"), "out of ideas"),
        (ValueError("\ud800"), "model 'm' raised ValueError: "),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_exception_fails_its_batch_and_no_other(fault: BaseException, text: str) -> None:
    with served(Once(fault)) as model:
        with pytest.raises(EngineFailed) as raised:
            model.ask_two_rows()
        assert text in str(raised.value)
        assert raised.value.model == "m"
        assert model.ask_two_rows()["SUM"].tolist() == [[2, 2], [2, 2]]


class Picky:
    """An engine that refuses a batch with a 13 in it, in the words of a fault."""

    concurrent = True

    def __init__(self, fault: BaseException, *, keeps_state: bool = False) -> None:
        self.fault = fault
        self.keeps_state = keeps_state
        self.batches: list[int] = []

    def execute(self, inputs: list[Any], wanted: list[bool]) -> list[Array]:
        self.batches.append(len(inputs[0]))
        if (inputs[0] == 13).any():
            raise self.fault
        return add_sub(*inputs)


TOGETHER: Final = ADD_SUB + "dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 60000000 }"


def ask_together(engine: Picky) -> tuple[list[str], list[int]]:
    """What two requests of one batch get, the first with a 13, and the sizes of all batches"""
    with served(engine, text=TOGETHER) as model, ThreadPoolExecutor(2) as pool:

        def ask(number: int) -> str:
            try:
                row = np.full((1, 2), number, np.float32)
                return str(model.ask(row, row)["SUM"].tolist())
            except EngineFailed as error:
                return str(error)

        return list(pool.map(ask, [13, 4])), engine.batches


@pytest.mark.parametrize(
    "fault",
    [ValueError("13"), MemoryError("13"), EngineFailed("13"), SystemExit("13"), KeyboardInterrupt("13")],
    ids=lambda it: str(type(it)),
)
def test_an_exception_about_one_request_fails_that_one_alone(fault: BaseException) -> None:
    answers, batches = ask_together(Picky(fault))
    assert "13" in answers[0]
    assert answers[1] == "[[8.0, 8.0]]"
    assert batches == [2, 1, 1]


@pytest.mark.parametrize(
    "engine",
    [Picky(ModelFailed("13")), Picky(ValueError("13"), keeps_state=True)],
    ids=["of the model", "with state"],
)
def test_an_exception_that_no_data_brings_about_fails_the_batch(engine: Picky) -> None:
    answers, batches = ask_together(engine)
    assert "13" in answers[0]
    assert answers[1] == answers[0]
    assert batches == [2]


def test_a_long_message_is_cut() -> None:
    with served(Once(ValueError("ä" * 100_000))) as model, pytest.raises(EngineFailed, match=r"ä…$") as raised:
        model.ask_two_rows()
    assert len(str(raised.value).encode()) < 10_000


def test_the_traceback_is_in_the_debug_log(capfd: pytest.CaptureFixture[str]) -> None:
    with served(Once(ValueError("bad weather")), log=LogOptions(verbose=1)) as model, pytest.raises(EngineFailed):
        model.ask_two_rows()
    log = capfd.readouterr().err
    assert "raised ValueError: bad weather" in log
    assert "in execute" in log


FULL: Final = np.zeros((2, 2), np.float32)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "model 'm' answered an object of type NoneType, expected a list of its outputs"),
        (FULL, "model 'm' answered an object of type numpy.ndarray, expected a list of its outputs"),
        ([FULL], "model 'm' answered 1 outputs, expected 2: 'SUM', 'DIFFERENCE'"),
        ([FULL] * 3, "model 'm' answered 3 outputs, expected 2: 'SUM', 'DIFFERENCE'"),
        ([FULL, None], "model 'm' left output 'DIFFERENCE' out, which was asked for"),
        ({"SUM": FULL}, "model 'm' left output 'DIFFERENCE' out, which was asked for"),
        ({"SUM": FULL, "SAM": FULL}, "model 'm' answered an output 'SAM', expected 'SUM', 'DIFFERENCE'"),
        ({1: FULL}, "model 'm' answered an output 1, expected 'SUM', 'DIFFERENCE'"),
        ([FULL, FULL.astype("f8")], "output 'DIFFERENCE' has data-type FP64, the model configuration says FP32"),
        ([FULL, FULL[:1]], "output 'DIFFERENCE' of model 'm' has shape [1, 2], expected [2, 2]"),
        ([FULL[0], FULL], "output 'SUM' of model 'm' has shape [2], expected [2, 2]"),
        ([FULL[:, :1], FULL], "output 'SUM' of model 'm' has shape [2, 1], expected [2, 2]"),
        ([FULL.astype("c8"), FULL], "output 'SUM' of model 'm' has dtype complex64, expected bool, integers, floats"),
        (
            [object(), FULL],
            "output 'SUM' of model 'm' has an object of type object at element 0, expected bytes or str",
        ),
        ([[[1.0], [1.0, 2.0]], FULL], "output 'SUM' of model 'm' cannot be read as an array: "),
    ],
    ids=lambda value: re.sub(r" at 0x\w+", "", str(value)),
)
def test_wrong_outputs_are_named(answer: Answer, text: str) -> None:
    with served(Plain(lambda a, b: answer)) as model, pytest.raises(EngineFailed) as raised:
        model.ask_two_rows()
    assert text in str(raised.value)


def test_outputs_may_come_by_name_and_in_any_layout() -> None:
    def answer(a: Array, b: Array) -> Answer:
        return {"DIFFERENCE": (a - b).T.copy().T, "SUM": (a + b).astype(">f4")[::-1][::-1]}

    with served(Plain(answer)) as model:
        got = model.ask(np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 1], [2, 2]], np.float32))
    assert got["SUM"].tolist() == [[2, 3], [5, 6]]
    assert got["DIFFERENCE"].tolist() == [[0, 1], [1, 2]]


def test_the_engine_is_told_which_outputs_are_wanted() -> None:
    asked: list[list[bool]] = []

    class Watching(Plain):
        def execute(self, inputs: list[Any], wanted: list[bool]) -> Answer:
            asked.append(wanted)
            return [output if want else None for output, want in zip(add_sub(*inputs), wanted, strict=True)]

    with served(Watching(add_sub)) as model:
        assert list(model.ask(FULL, FULL, outputs=["DIFFERENCE"])) == ["DIFFERENCE"]
        assert list(model.ask(FULL, FULL)) == ["SUM", "DIFFERENCE"]
    assert asked == [[False, True], [True, True]]


STRINGS: Final = """
    name: "m" backend: "test" max_batch_size: 8
    input { name: "A" data_type: TYPE_STRING dims: [ -1 ] } output { name: "B" data_type: TYPE_STRING dims: [ -1 ] }
"""


@pytest.mark.parametrize("answer", [[["x", b"\xff"]], [[]], [["ž\0"]]])
def test_strings_may_come_in_lists(answer: list[list[str | bytes]]) -> None:
    with served(Plain(lambda strings: [answer]), text=STRINGS) as model:
        got = model.ask(np.array([[b"a", b"\xff\0"]], object))["B"]
    assert got.tolist() == [[text.encode() if isinstance(text, str) else text for text in row] for row in answer]


BF16: Final = """
    name: "m" backend: "test"
    input { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "B" data_type: TYPE_BF16 dims: [ -1 ] }
"""


def test_float32_is_rounded_to_bf16_as_ml_dtypes_does() -> None:
    edges = [0.0, -0.0, 1.0, 1.00390625, 1.01171875, 3.4028235e38, np.inf, -np.inf, np.nan, 1e-45, 65535.0, -2.7182817]
    floats = np.concatenate([np.array(edges, np.float32), np.random.default_rng(1).normal(size=1000).astype("f4")])
    with served(Plain(lambda given: [given]), text=BF16) as model:
        got = model.ask(floats)["B"]
    with np.errstate(over="ignore", invalid="ignore"):
        expected = floats.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))


def test_inputs_cannot_be_written_to() -> None:
    def spoil(a: Array, b: Array) -> Answer:
        a += 1
        return [a, b]

    with served(Plain(spoil)) as model, pytest.raises(EngineFailed, match="ValueError: output array is read-only"):
        model.ask_two_rows()


WIDE: Final = """
    name: "m" backend: "test" max_batch_size: 8 dynamic_batching { }
    input { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "B" data_type: TYPE_FP32 dims: [ -1 ] }
"""


def test_inputs_that_are_kept_stay_what_they_were() -> None:
    kept: list[Array] = []

    def keep(given: Array) -> Answer:
        kept.append(given[:, 1:])
        return [given]

    sent = [np.full((rows, 20_000), number, np.float32) for number, rows in enumerate((1, 2, 1, 3, 8))]
    with served(Plain(keep), text=WIDE) as model:
        threads = [threading.Thread(target=model.ask, args=(array,)) for array in sent]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for array in sent:
            model.ask(array + 10)
    values = sorted({float(value) for array in kept for value in np.unique(array)})
    assert values == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


def test_answers_do_not_change_when_the_engine_writes_to_what_it_gave() -> None:
    buffer = np.zeros((1, 50_000), np.float32)

    def count(given: Array) -> Answer:
        buffer[:] += 1
        return [buffer]

    with served(Plain(count), text=WIDE) as model:
        got = [model.ask(buffer.copy())["B"] for _ in range(3)]
    assert [float(array.max()) for array in got] == [1, 2, 3]
    assert [float(array.min()) for array in got] == [1, 2, 3]


def test_each_instance_runs_beside_the_others() -> None:
    meeting = threading.Barrier(3)

    def meet(a: Array, b: Array) -> Answer:
        meeting.wait(30)
        return add_sub(a, b)

    with served(Plain(meet), text=f"{ADD_SUB} instance_group {{ count: 3 }}") as model:
        threads = [threading.Thread(target=model.ask_two_rows) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not meeting.broken


def test_an_engine_for_one_batch_at_a_time_is_needed_for_each_instance() -> None:
    def alone() -> Plain:
        engine = Plain(add_sub)
        engine.concurrent = False
        return engine

    text = f"{ADD_SUB} instance_group {{ count: 2 }}"
    with pytest.raises(ConfigInvalid, match="model 'm' needs an engine for each"), served(alone(), text=text):
        pass
    with served(alone(), alone(), text=text) as model:
        assert model.ask_two_rows()["SUM"].tolist() == [[2, 2], [2, 2]]


def test_an_object_that_is_no_engine_is_refused() -> None:
    without: Any = object()
    match = r"model 'm': its engine cannot be used: .*no attribute 'execute'"
    with pytest.raises(ConfigInvalid, match=match), served(without):
        pass


def test_the_engine_goes_with_its_model_on_the_thread_that_closes() -> None:
    gone: list[int] = []
    engine = Plain(add_sub)
    weakref.finalize(engine, lambda: gone.append(threading.get_ident()))
    with served(engine) as model:
        model.ask_two_rows()
        del engine
        gc.collect()
        assert not gone
    assert gone == [threading.get_ident()]


def test_without_ml_dtypes_bf16_passes_as_float32() -> None:
    script = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "from tests import conformance\n"
        "from tests.integration.test_conformance import Subject\n"
        "conformance.run('every_datatype_passes_unchanged', Subject())\n"
        "conformance.run('joined_requests_get_their_own_rows_back', Subject())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
