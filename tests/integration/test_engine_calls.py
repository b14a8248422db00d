"""Calls to an engine in this process: what goes in, what comes out, and what is refused with which text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from tritonclient.http import InferInput

from runners import DeadlineExceeded, Engine, EngineFailed, InvalidInput, KushiError, ModelNotFound
from tests.arrays import DTYPES, LARGE, ones, sample

Array = NDArray[Any]


def refusal(engine: Engine, model: str, *inputs: object, **options: object) -> str:
    infer: Callable[..., object] = engine.infer
    with pytest.raises(InvalidInput) as raised:
        infer(model, *inputs, **options)
    assert raised.value.model == model
    return str(raised.value).removeprefix("[request id: <id_unknown>] ")


# --- names and positions ---


def test_inputs_are_given_by_position(engine: Engine) -> None:
    result = engine.infer("add_sub", ones() * 5, ones() * 3)
    assert result["OUTPUT0"].tolist() == [[8] * 16]
    assert result["OUTPUT1"].tolist() == [[2] * 16]


def test_inputs_are_given_by_name_in_any_order(engine: Engine) -> None:
    result = engine.infer("add_sub", {"INPUT1": ones() * 3, "INPUT0": ones() * 5})
    assert result["OUTPUT1"].tolist() == [[2] * 16]


def test_any_mapping_gives_names(engine: Engine) -> None:
    class Named(Mapping[str, Array]):
        def __getitem__(self, name: str) -> Array:
            return ones() * (5 if name == "INPUT0" else 3)

        def __iter__(self) -> Iterator[str]:
            return iter(("INPUT0", "INPUT1"))

        def __len__(self) -> int:
            return 2

    assert engine.infer("add_sub", Named())["OUTPUT1"].tolist() == [[2] * 16]


def test_the_result_of_one_model_is_the_input_of_another(engine: Engine) -> None:
    first = engine.infer("identity_int32", ones())
    assert engine.infer("identity_int32", {"INPUT0": first.tensor("OUTPUT0")})["OUTPUT0"].tolist() == [[1] * 16]
    with pytest.raises(InvalidInput, match="unexpected inference input 'OUTPUT0'"):
        engine.infer("identity_int32", first)


def test_a_single_array_is_the_first_input(engine: Engine) -> None:
    assert engine.infer("identity_int32", ones())["OUTPUT0"].tolist() == [[1] * 16]


def test_optional_inputs_may_be_left_out(engine: Engine) -> None:
    one = np.ones(1, np.int32)
    assert engine.infer("optional", one)["OUTPUT0"].tolist() == [1101]
    assert engine.infer("optional", one, one)["OUTPUT0"].tolist() == [1002]
    assert engine.infer("optional", {"INPUT2": one, "INPUT0": one})["OUTPUT0"].tolist() == [102]


def test_only_the_wanted_outputs_come(engine: Engine) -> None:
    assert list(engine.infer("add_sub", ones(), ones(), outputs=["OUTPUT1"])) == ["OUTPUT1"]
    assert list(engine.infer("add_sub", ones(), ones(), outputs=("OUTPUT1", "OUTPUT0"))) == ["OUTPUT0", "OUTPUT1"]


@pytest.mark.parametrize(("version", "expected"), [("", 3), (1, 1), ("1", 1), (3, 3), (2, 2)])
def test_a_version_is_text_or_a_number(engine: Engine, version: str | int, expected: int) -> None:
    result = engine.infer("all_versions", np.zeros((1, 1), np.int32), model_version=version)
    assert (result["OUTPUT0"].item(), result.model_version) == (expected, str(expected))


# --- data types ---


@pytest.mark.parametrize("columns", [3, LARGE])
@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype_goes_in_and_comes_out(engine: Engine, datatype: str, columns: int) -> None:
    sent = np.arange(4 * columns).reshape(4, columns).astype(DTYPES[datatype])
    result = engine.infer(f"identity_{datatype.lower()}", sent)
    assert result["OUTPUT0"].dtype == sent.dtype
    assert result["OUTPUT0"].tobytes() == sent.tobytes()
    assert result.tensor("OUTPUT0").datatype == datatype
    assert result.tensor("OUTPUT0").shape == (4, columns)


@pytest.mark.parametrize("columns", [3, LARGE])
@pytest.mark.parametrize("datatype", [name for name in DTYPES if np.dtype(DTYPES[name]).kind in "iuf"])
def test_an_array_of_the_other_byte_order_is_turned_round(engine: Engine, datatype: str, columns: int) -> None:
    sent = sample(DTYPES[datatype], columns)
    swapped = sent.astype(sent.dtype.newbyteorder(">"))
    assert engine.infer(f"identity_{datatype.lower()}", swapped)["OUTPUT0"].tolist() == sent.tolist()


@pytest.mark.parametrize("columns", [3, LARGE])
@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:, ::2],
        lambda a: a[:, ::-1],
        np.asfortranarray,
        lambda a: a.T.copy().T,
        lambda a: np.broadcast_to(a[:1], a.shape),
    ],
    ids=["every second", "backwards", "by columns", "transposed", "broadcast"],
)
def test_an_array_that_is_not_contiguous_is_put_in_order(
    engine: Engine, view: Callable[[Array], Array], columns: int
) -> None:
    sent = view(sample(np.float32, columns))
    assert engine.infer("identity_fp32", sent)["OUTPUT0"].tolist() == sent.tolist()


@pytest.mark.parametrize("columns", [3, LARGE])
def test_a_read_only_array_goes_in(engine: Engine, columns: int) -> None:
    sent = sample(np.float32, columns)
    sent.flags.writeable = False
    assert engine.infer("identity_fp32", sent)["OUTPUT0"].tolist() == sent.tolist()


def test_an_array_that_is_not_aligned_goes_in(engine: Engine) -> None:
    memory = np.zeros(8 * LARGE + 1, np.uint8)
    sent = memory[1:].view(np.float32).reshape(2, LARGE)
    sent[:] = sample(np.float32, LARGE)
    assert not sent.flags.aligned
    assert engine.infer("identity_fp32", sent)["OUTPUT0"].tolist() == sent.tolist()


def test_tensors_without_elements_go_in_and_come_out(engine: Engine) -> None:
    for datatype, dtype in DTYPES.items():
        result = engine.infer(f"identity_{datatype.lower()}", np.empty((2, 0), dtype))
        assert result["OUTPUT0"].shape == (2, 0)
        assert result["OUTPUT0"].dtype == dtype
    assert engine.infer("identity_bytes", np.empty((2, 0), object))["OUTPUT0"].shape == (2, 0)


def test_a_scalar_is_an_array_without_dimensions(engine: Engine) -> None:
    assert refusal(engine, "scalar", np.float32(2)).endswith("Expected [1], got []. ")
    assert refusal(engine, "identity_fp64", 2.5).startswith("input 'INPUT0' has no shape but model requires batch")


def test_lists_and_other_array_likes_go_through_numpy(engine: Engine) -> None:
    class Thing:
        def __array__(self, dtype: object = None, copy: object = None) -> Array:
            return np.full((1, 2), 7, np.int64)

    assert engine.infer("identity_int64", [[1, 2]])["OUTPUT0"].tolist() == [[1, 2]]
    assert engine.infer("identity_fp64", [[1.5, 2]])["OUTPUT0"].tolist() == [[1.5, 2]]
    assert engine.infer("identity_bool", [[True, False]])["OUTPUT0"].tolist() == [[True, False]]
    assert engine.infer("identity_int64", Thing())["OUTPUT0"].tolist() == [[7, 7]]
    assert engine.infer("identity_uint8", memoryview(b"ab").cast("B", (1, 2)))["OUTPUT0"].tolist() == [[97, 98]]


# --- strings ---


@pytest.mark.parametrize(
    "sent",
    [
        np.array([[b"a", b"", b"\x00\xff\x00"]], object),
        np.array([["ä", "", "日本語"]], object),
        np.array([[b"bytes", "and", np.str_("str")]], object),
        np.array([[b"fixed", b"", b"width"]]),
        np.array([["fixed", "", "wïdth"]]),
        np.array([["fixed", "", "wïdth"]]).astype(">U5"),
        np.array([["a", "ä", "variable width"]], np.dtypes.StringDType()),
        np.array([[b"a", b"-", b"b", b"-", b"c"]], object)[:, ::2],
        [["list", "of", "text"]],
        [[b"list", b"of", b"bytes\x00"]],
        [(b"mixed", "kinds", "ä")],
    ],
    ids=str,
)
def test_strings_of_any_kind_become_bytes(engine: Engine, sent: Array | list[Sequence[str | bytes]]) -> None:
    elements = sent[0] if isinstance(sent, list) else sent.tolist()[0]
    expected = [element.encode() if isinstance(element, str) else element for element in elements]
    output = engine.infer("identity_bytes", sent)["OUTPUT0"]
    assert output.dtype == object
    assert output.tolist() == [expected]
    assert all(type(element) is bytes for element in output[0])


def test_a_subclass_of_arrays_has_no_say_in_how_its_strings_are_read(engine: Engine) -> None:
    class Numbers(np.ndarray[Any, Any]):
        def astype(self, *_: object, **__: object) -> Array:
            return np.array([[8, 16]])

    text = np.array([["a", "bc"]])
    for sent in (text.view(Numbers), np.char.array(text), np.ma.array(text, mask=[[True, False]])):
        assert engine.infer("identity_bytes", sent)["OUTPUT0"].tolist() == [[b"a", b"bc"]]


def test_many_long_strings_come_back_whole(engine: Engine) -> None:
    sent = np.array([[bytes([row]) * (row * 100) for row in range(200)]], object)
    assert engine.infer("identity_bytes", sent)["OUTPUT0"].tolist() == sent.tolist()


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (np.array([["a", 5]], object), "input 0 has an object of type int at element 1, expected bytes or str"),
        (np.array([[None, "a"]], object), "input 0 has None at element 0, expected bytes or str"),
        ([["a", ["b"]]], "input 0 has an object of type list at element 1, expected bytes or str"),
        (np.array([["\ud800"]], object), "input 0 has a str that is no valid Unicode at element 0"),
        (np.array([[1 + 2j]]), "input 0 has dtype complex128, expected bool, integers, floats or strings"),
        (np.array([["2026-01-01"]], "datetime64[D]"), "input 0 has dtype datetime64[D], expected "),
        (np.zeros((1, 1), [("a", "i4"), ("b", "f4")]), "input 0 has dtype [('a', '<i4'), ('b', '<f4')], expected "),
        (np.zeros((1, 1), np.longdouble), f"input 0 has dtype {np.dtype(np.longdouble)}, expected "),
        (np.zeros((1, 1), ml_dtypes.float8_e4m3fn), "input 0 has dtype float8_e4m3fn, expected "),
        ([[1, 2], [3]], "input 0 cannot be read as an array: ValueError: "),
        (None, "input 0 has None at element 0, expected bytes or str"),
        (object(), "input 0 has an object of type object at element 0, expected bytes or str"),
        (InferInput("INPUT0", [1], "BYTES"), "input 0 has an object of tritonclient, expected the array itself"),
        ([InferInput("INPUT0", [1], "BYTES")], "input 0 has an object of tritonclient, expected the array itself"),
        ([{"INPUT0": 5}], "input 0 has a dict, expected an array: inputs go all by position, or all in one mapping"),
    ],
    ids=lambda value: None if not isinstance(value, str) else value,
)
def test_what_is_no_tensor_is_refused(engine: Engine, sent: object, text: str) -> None:
    assert refusal(engine, "identity_bytes", sent).startswith(text)


def test_an_input_that_is_no_tensor_is_named(engine: Engine) -> None:
    text = refusal(engine, "add_sub", {"INPUT0": ones(), "INPUT1": ones().astype(np.complex64)})
    assert text.startswith("input 'INPUT1' has dtype complex64, expected ")


def test_what_made_an_input_unreadable_is_the_cause_of_its_error(engine: Engine) -> None:
    class Broken:
        def __array__(self, dtype: object = None, copy: object = None) -> Array:
            raise ZeroDivisionError("no such data")

    text = r"^input 0 cannot be read as an array: ZeroDivisionError: no such data$"
    with pytest.raises(InvalidInput, match=text) as raised:
        engine.infer("identity_int64", Broken(), request_id="r5")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert (raised.value.model, raised.value.request_id) == ("identity_int64", "r5")


def test_inputs_by_name_may_change_while_they_are_read(engine: Engine) -> None:
    class Changing:
        def __array__(self, dtype: object = None, copy: object = None) -> Array:
            inputs["LATE"] = ones()
            return ones()

    inputs: dict[str, Any] = {"INPUT0": Changing(), "INPUT1": ones()}
    assert engine.infer("add_sub", inputs)["OUTPUT0"][0, 0] == 2


def test_an_interrupt_while_an_input_is_read_goes_on_its_way(engine: Engine) -> None:
    class Interrupting:
        def __array__(self, dtype: object = None, copy: object = None) -> Array:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.infer("identity_int64", Interrupting())


# --- what models refuse ---


def test_texts_of_wrong_inputs_are_those_of_the_protocol(engine: Engine) -> None:
    assert refusal(engine, "add_sub", ones(), ones().astype(np.float32)) == (
        "inference input 'INPUT1' data-type is 'FP32', but model 'add_sub' expects 'INT32'"
    )
    assert refusal(engine, "add_sub", ones(), {"INPUT1": ones()}).startswith("input 1 ")
    assert refusal(engine, "add_sub", ones()[:, :15], ones()[:, :15]).startswith(
        "unexpected shape for input 'INPUT0' for model 'add_sub'. Expected [-1,16], got [1,15]."
    )
    assert refusal(engine, "add_sub", ones(2), ones()) == (
        "input 'INPUT1' batch size does not match other inputs for 'add_sub'"
    )
    assert refusal(engine, "add_sub", ones(9), ones(9)) == ("inference request batch-size must be <= 8 for 'add_sub'")
    assert refusal(engine, "add_sub", {"NOPE": ones(), "INPUT0": ones()}) == (
        "unexpected inference input 'NOPE' for model 'add_sub'"
    )
    assert refusal(engine, "add_sub", ones()) == (
        "expected 2 inputs but got 1 inputs for model 'add_sub'. Got input(s) ['INPUT0'], but missing required "
        "input(s) ['INPUT1']. Please provide all required input(s)."
    )
    assert refusal(engine, "add_sub", ones(), ones(), ones()) == (
        "expected 2 inputs but got 3 inputs for model 'add_sub'"
    )
    assert refusal(engine, "add_sub", ones(), ones(), outputs=["NOPE"]) == (
        "unexpected inference output 'NOPE' for model 'add_sub'"
    )
    assert refusal(engine, "add_sub", ones(), ones(), outputs=["OUTPUT0", "OUTPUT0"]) == (
        "output 'OUTPUT0' already exists in request"
    )
    assert refusal(engine, "add_sub").startswith("expected 2 inputs but got 0 inputs for model 'add_sub'.")


def test_a_text_and_an_error_name_the_request(engine: Engine) -> None:
    with pytest.raises(InvalidInput, match=r"^\[request id: r7\] expected 2 inputs but got 1") as raised:
        engine.infer("add_sub", ones(), request_id="r7")
    assert (raised.value.model, raised.value.request_id) == ("add_sub", "r7")


@pytest.mark.parametrize(
    ("model", "version", "text"),
    [
        ("nope", "", "Request for unknown model: 'nope' is not found"),
        ("add_sub", "9", "Request for unknown model: 'add_sub' version 9 is not found"),
        ("", "", "Request for unknown model: '' is not found"),
    ],
)
def test_an_unknown_model_is_not_found(engine: Engine, model: str, version: str, text: str) -> None:
    with pytest.raises(ModelNotFound) as raised:
        engine.infer(model, ones(), ones(), model_version=version, request_id="r1")
    assert str(raised.value) == text
    assert (raised.value.model, raised.value.request_id) == (model or None, "r1")


def test_a_failure_of_the_framework_is_the_engines(engine: Engine) -> None:
    with pytest.raises(EngineFailed, match="indices element out of data bounds") as raised:
        engine.infer("gather", np.array([[99]]), request_id="r2")
    assert (raised.value.model, raised.value.request_id) == ("gather", "r2")
    assert engine.infer("gather", np.array([[3]]))["OUTPUT0"].item() == 9


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"model_version": -1}, "model_version is -1, expected a number, a label of the model, or '' for the latest"),
        (
            {"model_version": "1st"},
            "model_version is '1st', expected a number, a label of the model, or '' for the latest",
        ),
        ({"model_version": 1.0}, "model_version is 1.0, expected a number, a label of the model, or '' for the latest"),
        ({"outputs": 5}, "outputs is 5, expected a sequence of names, or a mapping from names to class counts"),
        ({"outputs": [5]}, "the name of an output is 5, expected a str"),
        ({"parameters": []}, "parameters is [], expected a mapping"),
        ({"parameters": {5: 5}}, "the name of a parameter is 5, expected a str"),
        (
            {"parameters": {"triton_x": 5}},
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
        ),
        (
            {"parameters": {"x": [1]}},
            "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (
            {"parameters": {"x": 1 << 64}},
            "parameter 'x' is 18446744073709551616, expected an int of 64 bits",
        ),
        ({"parameters": {"timeout": -1}}, "parameter 'timeout' is -1, expected an int of microseconds"),
        ({"parameters": {"timeout": 1.5}}, "parameter 'timeout' is 1.5, expected an int of microseconds"),
        ({"parameters": {"priority": True}}, "parameter 'priority' is True, expected an int of 0 or more"),
        ({"deadline": 0}, "deadline is 0, expected seconds above 0 or a positive timedelta"),
        ({"deadline": -1.0}, "deadline is -1.0, expected seconds above 0 or a positive timedelta"),
        ({"deadline": float("nan")}, "deadline is nan, expected seconds above 0 or a positive timedelta"),
        (
            {"deadline": timedelta(seconds=-1)},
            "deadline is datetime.timedelta(days=-1, seconds=86399), expected seconds above 0 or a positive timedelta",
        ),
        ({"deadline": "soon"}, "deadline is 'soon', expected seconds above 0 or a positive timedelta"),
        ({"priority": -1}, "priority is -1, expected an int of 0 or more"),
        ({"priority": 1.5}, "priority is 1.5, expected an int of 0 or more"),
        ({"request_id": 7}, "request_id is 7, expected a str"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_option_that_cannot_be_right_is_refused(engine: Engine, options: dict[str, Any], text: str) -> None:
    assert refusal(engine, "add_sub", ones(), ones(), **options) == text


def test_a_model_or_an_input_is_known_by_a_text(engine: Engine) -> None:
    with pytest.raises(InvalidInput, match=r"^model is 5, expected a name$"):
        engine.infer(5)  # type: ignore[arg-type]
    assert refusal(engine, "add_sub", {5: ones()}) == "the name of an input is 5, expected a str"


def test_parameters_and_deadlines_that_suffice_change_nothing(engine: Engine) -> None:
    parameters: dict[str, bool | int | float | str] = {
        "text": "x",
        "number": 5,
        "yes": True,
        "half": 0.5,
        "timeout": 10_000_000,
        "priority": 1,
    }
    for deadline in (30, 30.0, timedelta(seconds=30), 1e300):
        if deadline == 1e300:
            assert "deadline is 1e+300" in refusal(engine, "add_sub", ones(), ones(), deadline=deadline)
            continue
        result = engine.infer(
            "add_sub", ones(), ones(), parameters=parameters, deadline=deadline, priority=1, request_id="r3"
        )
        assert (result.request_id, result.parameters) == ("r3", {})


def test_a_deadline_ends_a_call_that_executes_too_long(engine: Engine) -> None:
    with pytest.raises(DeadlineExceeded, match=r"^Request timeout expired$") as raised:
        engine.infer("slow", np.array([[20_000]]), deadline=0.05, request_id="r4")
    assert (raised.value.model, raised.value.request_id) == ("slow", "r4")


def test_every_error_of_a_call_is_one_of_ours(engine: Engine) -> None:
    wrong: Sequence[tuple[Any, ...]] = [("nope",), ("add_sub",), ("add_sub", object()), ("gather", [[99]]), (None,)]
    for arguments in wrong:
        with pytest.raises(KushiError):
            engine.infer(*arguments)
