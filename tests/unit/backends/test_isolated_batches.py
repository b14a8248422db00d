"""Batches of an isolated model: joined for an engine and split over the requests, with the texts of the native core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np
import pytest

from runners.backends import ModelFailed, isolated_batches
from runners.backends.isolated_batches import Batches, Given
from runners.errors import EngineFailed, InvalidInput, KushiError
from tests.python_models import ADD_SUB, TOLD, Answer, Plain, Told, served
from tests.unit.text import config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Array = Any
ALONE: Final = ADD_SUB.replace("max_batch_size: 8", "max_batch_size: 0")


def given(*values: float, wanted: Sequence[bool] = (True, True)) -> Given:
    """A request with a row of twos for each value, to which it is added"""
    first = np.array([[value, value] for value in values], np.float32)
    return Given([first, np.full_like(first, 2)], wanted, {})


class Remembering(Plain):
    keeps_state = True


def batches(function: Callable[..., Any], text: str = ADD_SUB, kind: type[Plain] = Plain) -> Batches:
    return Batches(kind(function), config(text))


def add_sub(a: Array, b: Array) -> list[Array]:
    return [a + b, a - b]


def rows(outcome: Answer) -> list[list[float]]:
    return [[float(row[0]) for row in output] for output in outcome]


def text(outcome: Answer) -> str:
    assert isinstance(outcome, KushiError)
    return str(outcome)


def test_requests_are_joined_and_each_gets_its_rows() -> None:
    calls: list[int] = []

    def counted(a: Array, b: Array) -> list[Array]:
        calls.append(len(a))
        assert not a.flags.writeable
        return add_sub(a, b)

    outcomes = batches(counted).execute([given(1, 2), given(3), given(4, 5, 6)])
    assert calls == [6]
    assert [rows(outcome) for outcome in outcomes] == [[[3, 4], [-1, 0]], [[5], [1]], [[6, 7, 8], [2, 3, 4]]]


def test_without_a_batch_dimension_each_request_is_executed_by_itself() -> None:
    requests = [Given([np.full(2, value, np.float32), np.zeros(2, np.float32)], [True, True], {}) for value in (1, 2)]
    one, other = batches(add_sub, ALONE).execute(requests)
    assert not isinstance(one, KushiError)
    assert not isinstance(other, KushiError)
    assert one[0] is not None
    assert other[0] is not None
    assert (one[0].tolist(), other[0].tolist()) == ([1, 1], [2, 2])


def test_an_input_left_out_is_none() -> None:
    def plain(a: Array, b: Array) -> list[Array]:
        assert b is None
        return [a, a]

    (outcome,) = batches(plain, ALONE).execute([Given([np.ones(2, np.float32), None], [True, True], {})])
    assert not isinstance(outcome, KushiError)


def test_an_output_is_wanted_where_any_request_wants_it() -> None:
    seen: list[list[bool]] = []

    class Looking(Plain):
        def execute(self, inputs: list[NDArray[Any] | None], wanted: list[bool]) -> Answer:
            seen.append(wanted)
            return super().execute(inputs, wanted)

    looking = Batches(Looking(add_sub), config(ADD_SUB))
    looking.execute([given(1, wanted=[True, False]), given(2, wanted=[True, False])])
    looking.execute([given(1, wanted=[True, False]), given(2, wanted=[False, True])])
    assert seen == [[True, False], [True, True]]


def test_an_engine_hears_of_the_parameters_of_each_request() -> None:
    engine: Any = Told()
    told = Batches(engine, config(TOLD))
    requests = [Given([np.zeros((count, 2), np.float32)], [True], {"n": count}) for count in (2, 1)]
    one, other = told.execute(requests)
    assert not isinstance(one, KushiError)
    assert not isinstance(other, KushiError)
    assert one[0] is not None
    assert other[0] is not None
    assert (one[0].tolist(), other[0].tolist()) == ([['{"n": 2}'], ['{"n": 2}']], [['{"n": 1}']])


def picky(error: BaseException) -> Callable[[Array, Array], list[Array]]:
    def execute(a: Array, b: Array) -> list[Array]:
        if (a == 13).any():
            raise error
        return add_sub(a, b)

    return execute


def test_where_the_data_of_one_may_be_the_reason_each_is_executed_alone() -> None:
    one, unlucky, other = batches(picky(ValueError("13"))).execute([given(1), given(13), given(2)])
    assert (rows(one), rows(other)) == ([[3], [-1]], [[4], [0]])
    assert text(unlucky) == "model 'm' raised ValueError: 13"


@pytest.mark.parametrize(
    ("error", "kind"), [(ModelFailed("the device"), Plain), (EngineFailed("the device"), Remembering)]
)
def test_where_it_cannot_be_all_fail_at_once(error: BaseException, kind: type[Plain]) -> None:
    outcomes = batches(picky(error), kind=kind).execute([given(1), given(13)])
    assert [text(outcome) for outcome in outcomes] == ["the device", "the device"]


def test_too_few_rows_may_be_of_one_request() -> None:
    def execute(a: Array, b: Array) -> list[Array]:
        few = a[a[:, 0] != 13]
        return [few, few]

    one, unlucky = batches(execute).execute([given(1), given(13)])
    assert rows(one) == [[1], [1]]
    assert text(unlucky) == "output 'SUM' of model 'm' has shape [0, 2], expected [1, 2]"


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


def raising(error: BaseException) -> Callable[..., Any]:
    def execute(*_inputs: Array) -> Answer:
        raise error

    return execute


FLOATS: Final = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    "function",
    [
        raising(ValueError("bad weather")),
        raising(MemoryError()),
        raising(SystemExit(3)),
        raising(KeyboardInterrupt()),
        raising(np.linalg.LinAlgError("singular")),
        raising(UnprintableError()),
        raising(EngineFailed("out of ideas")),
        raising(InvalidInput("expected less")),
        lambda *_: None,
        lambda *_: FLOATS,
        lambda *_: [FLOATS],
        lambda *_: [FLOATS, None],
        lambda *_: {"SUM": FLOATS},
        lambda *_: {"SUM": FLOATS, "PRODUCT": FLOATS},
        lambda *_: [FLOATS, FLOATS.astype(np.float64)],
        lambda *_: [FLOATS, FLOATS[0]],
        lambda *_: [FLOATS, np.ones((2, 3), np.float32)],
        lambda *_: [FLOATS, "text"],
    ],
)
def test_what_is_wrong_is_said_as_the_native_core_says_it(function: Callable[..., Any]) -> None:
    with served(Plain(function)) as model, pytest.raises(KushiError) as raised:
        model.ask_two_rows()
    (outcome,) = batches(function).execute([given(1, 1)])
    assert (type(outcome), str(outcome)) == (type(raised.value), str(raised.value))


def test_a_text_that_is_no_unicode_is_made_one() -> None:
    (outcome,) = batches(raising(ValueError("\ud800"))).execute([given(1)])
    assert text(outcome) == "model 'm' raised ValueError: ?"


@pytest.mark.parametrize("answer", [(FLOATS, FLOATS), {"DIFFERENCE": FLOATS, "SUM": FLOATS}, [[[1, 1], [1, 1]]] * 2])
def test_outputs_come_in_order_or_by_name(answer: Answer) -> None:
    (outcome,) = batches(lambda *_: answer, ADD_SUB.replace("TYPE_FP32", "TYPE_INT64")).execute([given(1, 1)])
    if isinstance(answer, list):
        assert rows(outcome) == [[1, 1], [1, 1]]
    else:
        assert text(outcome) == "output 'SUM' has data-type FP32, the model configuration says INT64"
        assert rows(batches(lambda *_: answer).execute([given(1, 1)])[0]) == [[1, 1], [1, 1]]


STRINGS: Final = TOLD.replace("dynamic_batching { }", "")


@pytest.mark.parametrize(
    "strings",
    [[["a"], [b"b"]], [[], []], np.array([[b"a"], [b"b"]]), np.array([["a"], ["b"]], np.dtypes.StringDType())],
)
def test_strings_may_be_lists_and_arrays_of_any_kind(strings: Answer) -> None:
    text_of = STRINGS.replace("dims: [ 1 ]", "dims: [ -1 ]")
    (outcome,) = batches(lambda _: [strings], text_of).execute([Given([FLOATS], [True], {})])
    assert not isinstance(outcome, KushiError)
    assert outcome[0] is not None
    assert len(outcome[0]) == 2


@pytest.mark.parametrize("element", [None, 3, bytearray(b"x")])
def test_what_is_no_string_is_refused_as_the_native_core_does(element: object) -> None:
    def answer(_: Array) -> Answer:
        return [[["a"], [element]]]

    with served(Plain(answer), text=STRINGS) as model, pytest.raises(EngineFailed) as raised:
        model.ask(FLOATS)
    (outcome,) = batches(answer, STRINGS).execute([Given([FLOATS], [True], {})])
    assert text(outcome) == str(raised.value)


BF16: Final = ADD_SUB.replace("TYPE_FP32", "TYPE_BF16")
EDGES: Final = np.array(
    [[1.0, -0.0], [3.3895314e38, 3.4e38], [np.inf, -np.inf], [1.00390625, 1.01171875], [1e-40, 1.0039063]], np.float32
)


@pytest.mark.parametrize("has_ml_dtypes", [True, False])
def test_bfloat16_is_16_bits_rounded_as_ml_dtypes_does(monkeypatch: pytest.MonkeyPatch, has_ml_dtypes: bool) -> None:
    if not has_ml_dtypes:
        monkeypatch.setattr(isolated_batches, "bfloat16", None)
    expected = EDGES.astype(ml_dtypes.bfloat16)
    both = [EDGES, expected]
    (outcome,) = batches(lambda *_: both, BF16).execute([Given([EDGES, EDGES], [True, True], {})])
    assert not isinstance(outcome, KushiError)
    for output in outcome:
        assert output is not None
        np.testing.assert_array_equal(output, expected.view(np.uint16))
    read = isolated_batches.as_bfloat16(expected.view(np.uint16))
    assert read.dtype == (ml_dtypes.bfloat16 if has_ml_dtypes else np.float32)
    np.testing.assert_array_equal(read.astype(np.float32), expected.astype(np.float32))


def test_a_nan_stays_one() -> None:
    bits = np.array([[0x7F800001, 0xFFC00000]], np.uint32).view(np.float32)
    (outcome,) = batches(lambda *_: [bits, bits], BF16).execute([Given([bits, bits], [True, True], {})])
    assert not isinstance(outcome, KushiError)
    assert outcome[0] is not None
    assert outcome[0].tolist() == [[0x7FC0, 0xFFC0]]


def test_a_scalar_has_no_dimension_here_and_one_for_clients() -> None:
    text = (
        'name: "m" input { name: "X" data_type: TYPE_FP32 dims: 1 } output { name: "S" data_type: TYPE_FP32 dims: 1 }'
    )
    engine = Plain(lambda x: [x.sum()])
    (outcome,) = Batches(engine, config(text), ["S"]).execute([Given([FLOATS[0]], [True], {})])
    assert not isinstance(outcome, KushiError)
    assert outcome[0] is not None
    assert (outcome[0].shape, float(outcome[0])) == ((), 2.0)
