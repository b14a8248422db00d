"""ONE table of what the verbs answer and raise, whichever way a call goes.

A row is a call as a Python program makes it, and what comes of it. The rows of the protocol's table that a program can
bring about with arrays are rows here as well, with their texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from runners import DeadlineExceeded, EngineFailed, InvalidInput, KushiError, ModelNotFound
from tests.arrays import DTYPES
from tests.contract.cases import CASES, Code
from tests.contract.cases.outputs import RESERVED
from tests.contract.requests import Infer, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

__all__ = ["ANSWERS", "HALF", "REFUSALS", "Answer", "Call", "Refusal"]


@dataclass(frozen=True)
class Call:
    """The arguments of ``infer``."""

    model: Any
    inputs: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """A call and the arrays that come back, by output."""

    name: str
    call: Call
    outputs: Mapping[str, NDArray[Any]]
    version: str = "1"


@dataclass(frozen=True)
class Refusal:
    """A call, the error that it raises, and the message of it."""

    name: str
    call: Call
    raised: type[KushiError]
    text: str


UNKNOWN_ID: Final = "[request id: <id_unknown>] "

ROW: Final = np.arange(16, dtype=np.int32).reshape(1, 16)
ONES: Final = np.ones((1, 16), dtype=np.int32)
TWO_ROWS: Final = np.tile(ROW, (2, 1))


def add_sub(*inputs: object, **options: object) -> Call:
    return Call("add_sub", inputs, options)


def sums(first: NDArray[Any] = ROW, second: NDArray[Any] = ONES) -> dict[str, NDArray[Any]]:
    return {"OUTPUT0": first + second, "OUTPUT1": first - second}


def echo(name: str, datatype: str, given: object, expected: NDArray[Any] | None = None) -> Answer:
    """The model that answers its input, asked by position."""
    array = np.asarray(given) if expected is None else expected
    return Answer(name, Call(f"identity_{datatype.lower()}", (given,)), {"OUTPUT0": array})


def ranked(name: str, outputs: Mapping[str, Any], expected: Mapping[str, object], rows: int = 1) -> Answer:
    """Sums and differences of rows, of which classes are asked for."""
    arrays = {output: np.array(given, dtype=np.object_) for output, given in expected.items()}
    return Answer(name, add_sub(np.tile(ROW, (rows, 1)), np.ones((rows, 16), np.int32), outputs=outputs), arrays)


def every_class() -> Iterator[Answer]:
    """Outputs that come as their best classes."""
    yield ranked("the best class", {"OUTPUT0": 1}, {"OUTPUT0": [[b"16:15"]]})
    yield ranked("the best classes of two rows", {"OUTPUT1": 2}, {"OUTPUT1": [[b"14:15", b"13:14"]] * 2}, rows=2)
    every = [[b"%d:%d" % (index + 1, index) for index in reversed(range(16))]]
    yield ranked("a class count of NumPy's", {"OUTPUT0": np.int64(16)}, {"OUTPUT0": every})
    yield ranked("more classes than there are", {"OUTPUT0": 2**64 - 1}, {"OUTPUT0": every})
    both = ranked("classes of one output of two", {"OUTPUT1": 1, "OUTPUT0": 0}, {"OUTPUT1": [[b"14:15"]]})
    yield replace(both, outputs={**both.outputs, "OUTPUT0": ROW + 1})
    yield Answer("no classes at all", add_sub(ROW, ONES, outputs={"OUTPUT0": 0}), {"OUTPUT0": ROW + 1})
    for datatype in ("INT8", "UINT64", "FP64"):
        scores = np.array([[1, 3, 2]], DTYPES[datatype])
        texts = [[b"3.000000:1", b"2.000000:2"] if datatype == "FP64" else [b"3:1", b"2:2"]]
        call = Call(f"identity_{datatype.lower()}", (scores,), {"outputs": {"OUTPUT0": 2}})
        yield Answer(f"classes of {datatype}", call, {"OUTPUT0": np.array(texts, dtype=np.object_)})
    scores = np.arange(400_000, dtype=np.int32).reshape(1, -1)
    call = Call("identity_int32", (scores,), {"outputs": {"OUTPUT0": 1}})
    yield Answer("classes of megabytes", call, {"OUTPUT0": np.array([[b"399999:399999"]], dtype=np.object_)})


def every_datatype() -> Iterator[Answer]:
    plain = np.array([[0, 1, 0, 2], [3, 0, 1, 1]])
    for datatype, dtype in DTYPES.items():
        yield echo(f"{datatype} as it came", datatype, plain.astype(dtype))
        yield echo(f"no {datatype} at all", datatype, np.empty((1, 0), dtype))


WORDS: Final = np.array([[b"", b"fire", "串".encode()]], dtype=np.object_)

ANSWERS: Final = [
    Answer("inputs by position", add_sub(ROW, ONES), sums()),
    Answer("inputs by name", add_sub({"INPUT1": ONES, "INPUT0": ROW}), sums()),
    Answer("some of the outputs", add_sub(ROW, ONES, outputs=["OUTPUT1"]), {"OUTPUT1": ROW - 1}),
    Answer("all outputs by name", add_sub(ROW, ONES, outputs=("OUTPUT1", "OUTPUT0")), sums()),
    Answer(
        "as many rows as a batch has",
        add_sub(np.tile(ROW, (8, 1)), np.ones((8, 16), np.int32)),
        sums(np.tile(ROW, (8, 1))),
    ),
    Answer("every other column of an array", add_sub(np.repeat(ROW, 2, axis=1)[:, ::2], ONES), sums()),
    Answer("columns in reverse", add_sub(ROW[:, ::-1], ONES), sums(ROW[:, ::-1])),
    Answer(
        "an array in Fortran's order", add_sub(np.asfortranarray(TWO_ROWS), np.ones((2, 16), np.int32)), sums(TWO_ROWS)
    ),
    Answer("the other byte order", add_sub(ROW.astype(">i4"), ONES), sums()),
    Answer("an array that repeats one element", add_sub(np.broadcast_to(np.int32(7), (1, 16)), ONES), sums(ONES * 7)),
    Answer("a memoryview", add_sub(ROW.data, ONES), sums()),
    Answer(
        "a version as text",
        Call("all_versions", (np.array([[40]], np.int32),), {"model_version": "2"}),
        {"OUTPUT0": np.array([[42]], np.int32)},
        "2",
    ),
    Answer(
        "a version as a number",
        Call("all_versions", (np.array([[40]], np.int32),), {"model_version": 2}),
        {"OUTPUT0": np.array([[42]], np.int32)},
        "2",
    ),
    Answer(
        "a version as a number of NumPy's",
        Call("all_versions", (np.array([[40]], np.int32),), {"model_version": np.int64(2)}),
        {"OUTPUT0": np.array([[42]], np.int32)},
        "2",
    ),
    Answer(
        "the latest version",
        Call("all_versions", (np.array([[40]], np.int32),)),
        {"OUTPUT0": np.array([[43]], np.int32)},
        "3",
    ),
    Answer("a deadline in seconds", add_sub(ROW, ONES, deadline=60), sums()),
    Answer("a deadline as a timedelta", add_sub(ROW, ONES, deadline=timedelta(minutes=1)), sums()),
    Answer("parameters of every type", add_sub(ROW, ONES, parameters={"a": True, "b": 1, "c": 1.5, "d": "x"}), sums()),
    Answer("a parameter as a number of NumPy's", add_sub(ROW, ONES, parameters={"a": np.int64(-1)}), sums()),
    Answer("a timeout as a parameter", add_sub(ROW, ONES, parameters={"timeout": 60_000_000}), sums()),
    Answer("a priority", add_sub(ROW, ONES, priority=2), sums()),
    Answer("a priority beyond all levels", add_sub(ROW, ONES, priority=2**64 - 1), sums()),
    Answer("a priority as a parameter", add_sub(ROW, ONES, parameters={"priority": 2**64 - 1}), sums()),
    Answer(
        "an optional input left out",
        Call("optional", ({"INPUT0": np.array([1], np.int32)},)),
        {"OUTPUT0": np.array([1101], np.int32)},
    ),
    Answer(
        "one of two optional inputs",
        Call("optional", ({"INPUT2": np.array([3], np.int32), "INPUT0": np.array([1], np.int32)},)),
        {"OUTPUT0": np.array([104], np.int32)},
    ),
    Answer("one number", Call("scalar", ([np.float32(2.5)],)), {"OUTPUT0": np.array([5], np.float32)}),
    Answer(
        "shapes that differ from those of the file",
        Call("reshaped", (ROW.reshape(1, 2, 8),)),
        {"OUTPUT0": ROW.reshape(1, 4, 4)},
    ),
    Answer(
        "an output that depends on the data",
        Call("nonzero", (np.array([0, 5, 0, 7], np.int32),)),
        {"OUTPUT0": np.array([[1, 3]])},
    ),
    Answer(
        "megabytes",
        Call("image", (np.linspace(0, 1, 3 * 512 * 512, dtype=np.float32).reshape(1, 3, 512, 512),)),
        {"OUTPUT0": np.linspace(0, 1, 3 * 512 * 512, dtype=np.float32).reshape(1, 3, 512, 512)},
    ),
    echo("lists of floats", "FP64", [[1.5, -2.0]], np.array([[1.5, -2.0]])),
    echo("lists of integers", "INT64", [[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], np.int64)),
    echo("lists of booleans", "BOOL", [[True, False]], np.array([[True, False]])),
    echo("objects that are bytes", "BYTES", WORDS),
    echo("objects that are text", "BYTES", np.array([["", "fire", "串"]], dtype=np.object_), WORDS),
    echo("bytes of one width", "BYTES", np.array([[b"", b"fire"]]), WORDS[:, :2]),
    echo("text of one width", "BYTES", np.array([["", "fire", "串"]]), WORDS),
    echo("lists of text", "BYTES", [["", "fire", "串"]], WORDS),
    echo("lists of bytes", "BYTES", [[b"", b"fire"]], WORDS[:, :2]),
    *every_datatype(),
    *every_class(),
]
"""What is answered."""


def array(tensor: Tensor) -> NDArray[Any] | None:
    """The tensor as an array, None where no array is like it."""
    if tensor.datatype == "BYTES":
        return None
    dtype = DTYPES.get(tensor.datatype)
    if dtype is None or tensor.raw is None:
        return None if dtype is None else np.array(tensor.values, dtype=dtype).reshape(tensor.shape)
    if len(tensor.raw) != np.dtype(dtype).itemsize * int(np.prod(tensor.shape, dtype=object)):
        return None
    return np.frombuffer(tensor.raw, dtype=dtype).reshape(tensor.shape)


def from_the_protocol() -> Iterator[Refusal]:
    """The rows of the protocol's table that arrays can bring about."""
    raised = {Code.NOT_FOUND: ModelNotFound, Code.INVALID_ARGUMENT: InvalidInput}
    for case in CASES:
        request = case.request
        if not isinstance(request, Infer) or "JSON" in case.name:
            continue
        inputs = {tensor.name: array(tensor) for tensor in request.inputs}
        if len(inputs) < len(request.inputs) or any(given is None for given in inputs.values()):
            continue
        options: dict[str, Any] = {}
        if request.version:
            options["model_version"] = request.version
        if request.outputs:
            options["outputs"] = [output.name for output in request.outputs]
        if any(output.classes for output in request.outputs):
            options["outputs"] = {output.name: output.classes or 0 for output in request.outputs}
        if request.id:
            options["request_id"] = request.id
        if request.parameters:
            options["parameters"] = request.parameters
        yield Refusal(case.name, Call(request.model, (inputs,), options), raised[case.code], case.text)


NUMBER: Final = "expected a number, a label of the model, or '' for the latest"
NAMES: Final = "expected a sequence of names, or a mapping from names to class counts"
HALF: Final = "a\ud83d"
NO_TEXT: Final = "which has a lone surrogate and is no text in UTF-8"
MOMENT: Final = "expected seconds above 0 or a positive timedelta"
NO_PARAMETER: Final = "parameter 'mood' has invalid type. It should be either 'int', 'bool', or 'string'."


def refused(name: str, text: str, *inputs: object, model: object = "add_sub", **options: object) -> Refusal:
    return Refusal(name, Call(model, inputs or (ROW, ONES), options), InvalidInput, text)


ARGUMENTS: Final = [
    refused("a model that is no name", "model is 5, expected a name", model=5),
    refused("a version that is no number", f"model_version is '1st', {NUMBER}", model_version="1st"),
    refused("a version that is a float", f"model_version is 1.0, {NUMBER}", model_version=1.0),
    refused("a version that is true", f"model_version is True, {NUMBER}", model_version=True),
    refused("a negative version", f"model_version is -1, {NUMBER}", model_version=-1),
    refused("outputs that are one name", f"outputs is 'OUTPUT0', {NAMES}", outputs="OUTPUT0"),
    refused("outputs that are a number", f"outputs is 5, {NAMES}", outputs=5),
    refused("an output that is a number", "the name of an output is 5, expected a str", outputs=[5]),
    refused("an output of a mapping that is a number", "the name of an output is 5, expected a str", outputs={5: 1}),
    *(
        refused(
            f"{given!r} classes",
            f"the class count of output 'OUTPUT0' is {given!r}, expected an int of 0 or more",
            outputs={"OUTPUT0": given},
        )
        for given in (-1, 2**64, 1.0, True, "3", None)
    ),
    refused(
        "classes of an output that is not there",
        "unexpected inference output 'OUTPUT9' for model 'add_sub'",
        outputs={"OUTPUT9": 1},
    ),
    refused(
        "an output twice, as a list", f"{UNKNOWN_ID}output 'OUTPUT0' already exists in request", outputs=["OUTPUT0"] * 2
    ),
    refused("parameters that are a list", "parameters is [1], expected a mapping", parameters=[1]),
    refused("a parameter that is none", NO_PARAMETER, parameters={"mood": None}),
    refused("a parameter that is a list", NO_PARAMETER, parameters={"mood": [1]}),
    refused("a parameter of Triton's own", RESERVED, parameters={"triton_enable_empty_final_response": True}),
    refused(
        "a timeout that is negative",
        "parameter 'timeout' is -1, expected an int of microseconds",
        parameters={"timeout": -1},
    ),
    refused("no time at all", f"deadline is 0, {MOMENT}", deadline=0),
    refused("a deadline in the past", f"deadline is -1.5, {MOMENT}", deadline=-1.5),
    refused(
        "a timedelta into the past", f"deadline is {timedelta(seconds=-1)!r}, {MOMENT}", deadline=timedelta(seconds=-1)
    ),
    refused("a deadline that is no number", f"deadline is nan, {MOMENT}", deadline=float("nan")),
    refused("a deadline that is text", f"deadline is 'soon', {MOMENT}", deadline="soon"),
    refused("a deadline that is a truth value", f"deadline is True, {MOMENT}", deadline=True),
    refused(
        "a deadline that never comes", f"deadline is inf, {MOMENT}, or None for no deadline", deadline=float("inf")
    ),
    refused("a priority that is a truth value", "priority is True, expected an int of 0 or more", priority=True),
    refused("a parameter with half a character", f"parameter 'a' is {HALF!r}, {NO_TEXT}", parameters={"a": HALF}),
    refused("a parameter whose name has it", f"the name of a parameter is {HALF!r}, {NO_TEXT}", parameters={HALF: 1}),
    refused("a request id with half a character", f"request_id is {HALF!r}, {NO_TEXT}", request_id=HALF),
    refused("an output with half a character", f"the name of an output is {HALF!r}, {NO_TEXT}", outputs=[HALF]),
    refused(
        "a parameter beyond 64 bits", f"parameter 'a' is {2**63}, expected an int of 64 bits", parameters={"a": 2**63}
    ),
    refused("a priority below zero", "priority is -1, expected an int of 0 or more", priority=-1),
    refused("a priority that is text", "priority is 'high', expected an int of 0 or more", priority="high"),
    refused("a request id that is a number", "request_id is 7, expected a str", request_id=7),
    refused("an input whose name is a number", "the name of an input is 0, expected a str", {0: ROW}),
]

REFUSALS: Final = [
    *from_the_protocol(),
    *ARGUMENTS,
    Refusal(
        "an index outside of the table",
        Call("gather", (np.array([[99]]),), {"request_id": "nine"}),
        EngineFailed,
        "onnx runtime error 2: Non-zero status code returned while running Gather node. Name:'' Status Message: "
        "indices element out of data bounds, idx=99 must be within the inclusive range [-10,9]",
    ),
    Refusal(
        "more time than the deadline allows",
        Call("slow", (np.array([[2000]]),), {"deadline": 0.02, "request_id": "late"}),
        DeadlineExceeded,
        "Request timeout expired",
    ),
]
"""What is refused or fails."""
