"""What the same Python models answer on the real tritonserver and on Kushi: tensors, requests, batches, metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from tritonclient import http

from tests.peer.pair import Pair, Request, get, infer, post, told

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.timeout(400)

ROW = np.array([[3, 4, 5, 6]], np.int32)
BOTH = {"INPUT0": ROW, "INPUT1": ROW * 2}
TENSORS: dict[str, NDArray[Any]] = {
    "BOOL": np.array([[True, False]]),
    "FP16": np.array([[1.5, -np.inf]], np.float16),
    "FP32": np.array([[1.5, np.nan]], np.float32),
    "FP64": np.array([[1.5, 5e-324]]),
    "BF16": np.array([[1.5, -2.0]], ml_dtypes.bfloat16),
    "STRING": np.array([[b"a", b"", b"\xff\x00", "é".encode()]], object),
    **{
        f"{sign}INT{bits}": np.array([[0, 7, np.iinfo(f"{sign}INT{bits}".lower()).max]], f"{sign}INT{bits}".lower())
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    },
}


def test_tensors_are_computed_with(pair: Pair) -> None:
    answer = pair.ask(infer("add_sub", BOTH)).are_the_same()
    assert [output["data"] for output in answer["outputs"]] == [[9, 12, 15, 18], [-3, -4, -5, -6]]


def test_several_rows_in_nested_lists(pair: Pair) -> None:
    rows = [{"name": name, "datatype": "INT32", "shape": [2, 4], "data": [[1, 2, 3, 4]] * 2} for name in BOTH]
    pair.ask(post("/v2/models/add_sub/infer", {"inputs": rows})).are_the_same()


def test_a_wanted_output_and_a_request_id(pair: Pair) -> None:
    answer = pair.ask(infer("add_sub", BOTH, outputs=["OUTPUT1"], id="seven")).are_the_same()
    assert (answer["id"], [output["name"] for output in answer["outputs"]]) == ("seven", ["OUTPUT1"])


def as_bytes(datatype: str, array: NDArray[Any]) -> Request:
    """As the official client sends it"""
    tensor = http.InferInput(f"IN_{datatype}", array.shape, "BYTES" if datatype == "STRING" else datatype)
    tensor.set_data_from_numpy(array)
    body, length = http.InferenceServerClient.generate_request_body([tensor])
    return Request("POST", "/v2/models/echo/infer", body, [("Inference-Header-Content-Length", str(length))])


@pytest.mark.parametrize("datatype", TENSORS)
def test_every_datatype_comes_back_as_bytes(pair: Pair, datatype: str) -> None:
    document, data = pair.ask(as_bytes(datatype, TENSORS[datatype])).are_the_same()
    assert [output["name"] for output in document["outputs"]] == [f"OUT_{datatype}"]
    assert len(data) == document["outputs"][0]["parameters"]["binary_data_size"] > 0


@pytest.mark.parametrize("datatype", [name for name in TENSORS if name not in {"FP16", "BF16", "STRING"}])
def test_every_datatype_comes_back_as_json(pair: Pair, datatype: str) -> None:
    pair.ask(infer("echo", {f"IN_{datatype}": TENSORS[datatype]})).are_the_same()


@pytest.mark.parametrize("texts", [["a", ""], ["grüezi", '"\\\n'], ["\N{NULL}"]])
def test_strings_come_back_as_json(pair: Pair, texts: list[str]) -> None:
    answer = pair.ask(infer("echo", {"IN_STRING": np.array([texts], object)})).are_the_same()
    assert answer["outputs"][0]["data"] == texts


def test_an_empty_tensor_comes_back(pair: Pair) -> None:
    pair.ask(infer("echo", {"IN_INT32": np.zeros((1, 0), np.int32)})).are_the_same()
    pair.ask(as_bytes("FP32", np.zeros((1, 0), np.float32))).are_the_same()


def test_a_large_tensor_comes_back(pair: Pair) -> None:
    array = np.random.default_rng(0).random((2, 300_000), np.float32)
    _, data = pair.ask(as_bytes("FP32", array)).are_the_same()
    assert data == array.tobytes()


def test_many_tensors_at_once(pair: Pair) -> None:
    inputs = {f"IN_INT{bits}": np.ones((2, 3), f"int{bits}") for bits in (8, 16, 32, 64)}
    assert len(pair.ask(infer("echo", inputs)).are_the_same()["outputs"]) == 4
    pair.ask(infer("echo", inputs, outputs=["OUT_INT16", "OUT_FP32"])).are_the_same()


def test_coroutines_wait_side_by_side(pair: Pair) -> None:
    for x in (21, 0):
        pair.ask(infer("gather", {"X": np.array([x], np.float32)})).are_the_same()


@pytest.mark.parametrize("inputs", [{"FIRST": [1], "SECOND": [1, 2]}, {"FIRST": [1]}, {"FIRST": []}])
def test_optional_inputs_may_be_missing(pair: Pair, inputs: dict[str, list[int]]) -> None:
    arrays = {name: np.array(values, np.int32) for name, values in inputs.items()}
    answer = pair.ask(infer("optional", arrays)).are_the_same()
    came = json.loads(answer["outputs"][0]["data"][0])
    assert came == {**inputs, "by name": "SECOND" in inputs}


X = {"X": np.array([[0.5]], np.float32)}


def seen(pair: Pair, output: str = "REQUEST", **members: Any) -> Any:  # noqa: ANN401 - of JSON
    answers = pair.ask(infer("seen", X, outputs=[output], **members))
    assert (answers.triton.status, answers.kushi.status) == (200, 200)
    triton, kushi = (json.loads(answer.json()["outputs"][0]["data"][0]) for answer in (answers.triton, answers.kushi))
    for args in (triton, kushi):
        if "model_config" in args:
            args["model_config"] = json.loads(args["model_config"])
    assert triton == kushi
    return kushi


def test_a_model_sees_the_request(pair: Pair) -> None:
    request = seen(pair, id="seven")
    assert (request["request_id"], request["wanted"]) == ("seven", ["REQUEST"])
    assert (request["inputs"], request["is_cancelled"]) == ([["X", [1, 1], True]], False)


def test_a_model_that_is_asked_for_nothing_is_asked_for_all_outputs(pair: Pair) -> None:
    answers = pair.ask(infer("seen", X))
    for answer in (answers.triton, answers.kushi):
        outputs = {output["name"]: output["data"][0] for output in answer.json()["outputs"]}
        assert json.loads(outputs["REQUEST"])["wanted"] == ["ARGS", "REQUEST"]


@pytest.mark.parametrize(
    "parameters",
    [
        {"text": "é", "count": -7, "flag": True, "share": 1.5, "empty": ""},
        {"large": 2**63 - 1, "small": -(2**63), "zero": 0, "false": False},
        {"1": 1, "with space": "x", '"': "quoted"},
        {},
    ],
)
def test_parameters_have_their_types(pair: Pair, parameters: dict[str, object]) -> None:
    assert seen(pair, parameters=parameters)["parameters"] == parameters


def test_a_timeout_and_a_priority_are_no_parameters(pair: Pair) -> None:
    request = seen(pair, parameters={"timeout": 5_000_000, "priority": 1, "mine": 1})
    assert (request["timeout"], request["parameters"]) == (5_000_000, {"mine": 1})


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"sequence_id": 42, "sequence_start": True}, (42, 1)),
        ({"sequence_id": "abc", "sequence_end": True}, ("abc", 2)),
        ({"sequence_id": 2**64 - 1, "sequence_start": True, "sequence_end": True}, (2**64 - 1, 3)),
        ({"sequence_start": False}, (0, 0)),
    ],
)
def test_a_sequence_is_seen(pair: Pair, parameters: dict[str, object], expected: tuple[object, int]) -> None:
    request = seen(pair, parameters=parameters)
    assert (request["correlation_id"], request["flags"]) == expected


@pytest.mark.parametrize("value", [[1], {"a": 1}, None])
def test_a_parameter_of_another_type_is_refused(pair: Pair, value: object) -> None:
    pair.ask(infer("seen", X, parameters={"mine": value})).are_the_same(400)


def test_a_reserved_parameter_is_refused(pair: Pair) -> None:
    pair.ask(infer("seen", X, parameters={"triton_mine": 1})).are_the_same(400)


def test_a_model_sees_what_it_is_made_with(pair: Pair) -> None:
    assert seen(pair, "ARGS")["model_config"]["parameters"] == {"threshold": {"string_value": "0.5"}}


def crowd(*values: int) -> list[Request]:
    return [infer("crowd", {"X": np.array([[value]], np.int32)}) for value in values]


def test_requests_meet_in_a_batch(pair: Pair) -> None:
    for number, answer in enumerate(pair.ask_together(crowd(0, 1, 2, 3))):
        x, requests = (
            {output["name"]: output for output in answer.are_the_same()["outputs"]}[name] for name in ("Y", "REQUESTS")
        )
        assert (x["data"], requests["data"]) == ([number], [4])


def test_an_error_of_one_request_of_a_batch_is_its_own(pair: Pair) -> None:
    first, *others = pair.ask_together(crowd(-1, 1, 2, 3))
    assert first.are_the_same(404) == {"error": "X is negative"}
    for answer in others:
        answer.are_the_same()


def test_an_exception_is_an_error_of_the_whole_batch(pair: Pair) -> None:
    for answer in pair.ask_together(crowd(1, 2, 3, 101)):
        assert "ValueError: X is too large" in answer.are_the_same(500)["error"]


CHANGED: dict[str, dict[str, NDArray[Any] | None]] = {
    "missing": {"INPUT1": None},
    "none": {"INPUT0": None, "INPUT1": None},
    "unknown for a known one": {"INPUT1": None, "INPUT2": ROW},
    "other type": {"INPUT0": ROW.astype(np.float32)},
    "other shape": {"INPUT0": ROW[:, :3]},
    "too many rows": {"INPUT0": np.repeat(ROW, 9, 0), "INPUT1": np.repeat(ROW, 9, 0)},
    "too many dimensions": {"INPUT0": ROW[None]},
}


@pytest.mark.parametrize("inputs", CHANGED.values(), ids=CHANGED)
def test_wrong_inputs_are_refused(pair: Pair, inputs: dict[str, NDArray[Any] | None]) -> None:
    given = {name: array for name, array in {**BOTH, **inputs}.items() if array is not None}
    pair.ask(infer("add_sub", given)).are_the_same(400)


def test_a_missing_batch_dimension_is_refused(pair: Pair) -> None:
    pair.ask(infer("seen", {"X": X["X"][0]})).are_the_same(400)


def test_a_surplus_input_is_refused(pair: Pair) -> None:
    answer = pair.ask(infer("add_sub", {**BOTH, "INPUT2": ROW}))
    said, more, _ = answer.kushi.error.partition(" The model has no input(s) ['INPUT2'].")
    assert more
    # it names them in the order of a hash map
    assert (answer.triton.status, sorted(answer.triton.error)) == (answer.kushi.status, sorted(said))


def test_an_unknown_output_is_refused(pair: Pair) -> None:
    pair.ask(infer("add_sub", BOTH, outputs=["NONE"])).are_the_same(400)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("add_sub/versions/1", 200),
        ("add_sub/versions/7", 404),
        ("none", 404),
        ("raising", 404),
        ("raising/versions/1", 503),
    ],
)
def test_what_is_not_there_is_not_found(pair: Pair, path: str, status: int) -> None:
    pair.ask(infer(path, BOTH)).are_the_same(status)


SERVED = [
    "add_sub", "asking", "cancelled", "crowd", "echo", "gather", "misbehaving", "optional", "repeat", "seen", "shout",
    "sink", "source", "unconfigured",
]  # fmt: skip


@pytest.mark.parametrize("model", SERVED)
def test_metadata_and_configuration(pair: Pair, model: str) -> None:
    pair.ask(get(f"/v2/models/{model}")).are_the_same()
    pair.ask(get(f"/v2/models/{model}/config")).are_the_same()
    ready = pair.ask(get(f"/v2/models/{model}/ready"))
    # where Triton says nothing stands what KServe's clients read
    assert (ready.triton.status, ready.triton.body) == (200, b"")
    assert (ready.kushi.status, told(ready.kushi)) == (200, {"name": model, "ready": True})


def test_a_model_may_give_nothing(pair: Pair) -> None:
    pair.ask(infer("sink", {"X": ROW[0]})).are_the_same()


def test_a_model_may_need_nothing(pair: Pair) -> None:
    pair.ask(infer("source", {})).are_the_same()


def test_a_model_without_tensors_may_be_asked(pair: Pair) -> None:
    pair.ask(infer("unconfigured", {})).are_the_same()
