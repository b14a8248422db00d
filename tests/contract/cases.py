"""ONE table of what the protocol says about requests that cannot be served: the request, the status, the whole text.

``request`` is an ``Infer`` where the case means the same on every transport, and an ``Http`` where it is about JSON or
HTTP. ``code`` is the protocol's error code; each transport maps it to a status of its own.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tests.contract.requests import HEADER_LENGTH, Infer, Output, Tensor, path, strings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.raw_http import Headers

__all__ = ["CASES", "EXPLICIT_CASES", "Case", "Code", "Http"]


class Code(Enum):
    """HTTP status and gRPC code of an error."""

    INTERNAL = (500, "INTERNAL")
    NOT_FOUND = (404, "NOT_FOUND")
    INVALID_ARGUMENT = (400, "INVALID_ARGUMENT")
    UNAVAILABLE = (503, "UNAVAILABLE")
    UNIMPLEMENTED = (501, "UNIMPLEMENTED")

    @property
    def http(self) -> int:
        return self.value[0]

    @property
    def grpc(self) -> str:
        return self.value[1]


@dataclass(frozen=True)
class Http:
    """A request that only HTTP can carry, or can get wrong in this way."""

    body: bytes
    headers: Headers = ()
    path: str = path("add_sub")


@dataclass(frozen=True)
class Case:
    name: str
    request: Infer | Http
    code: Code
    text: str


UNKNOWN_ID: Final = "[request id: <id_unknown>] "
ROW: Final = struct.pack("<16i", *range(16))
I64_MAX: Final = 9223372036854775807

BATCH_NOTE: Final = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


def int32(name: str, shape: Sequence[int] = (1, 16), raw: bytes = ROW) -> Tensor:
    return Tensor(name, "INT32", shape, raw=raw)


def add_sub(*inputs: Tensor, outputs: Sequence[Output] = (), id: str = "") -> Infer:  # noqa: A002 - its name there
    return Infer("add_sub", inputs, outputs, id=id)


VALID: Final = (int32("INPUT0"), int32("INPUT1"))


MODEL_CASES: Final = [
    Case(
        "unknown model",
        Infer("missing", VALID),
        Code.NOT_FOUND,
        "Request for unknown model: 'missing' is not found",
    ),
    Case(
        "unknown version",
        Infer("add_sub", VALID, version="99"),
        Code.NOT_FOUND,
        "Request for unknown model: 'add_sub' version 99 is not found",
    ),
    Case(
        "version that the policy leaves out",
        Infer("specific_versions", [Tensor("INPUT0", "INT32", (1, 1), values=[1])], version="2"),
        Code.NOT_FOUND,
        "Request for unknown model: 'specific_versions' version 2 is not found",
    ),
    Case(
        "version zero",
        Infer("add_sub", VALID, version="0"),
        Code.NOT_FOUND,
        "Request for unknown model: 'add_sub' version 0 is not found",
    ),
    Case(
        "version beyond 64 bits",
        Infer("add_sub", VALID, version="99999999999999999999"),
        Code.INVALID_ARGUMENT,
        "failed to get model version from specified version string '99999999999999999999' (details: stol), "
        "version should be an integral value > 0",
    ),
]

INPUT_CASES: Final = [
    Case(
        "no input at all",
        add_sub(),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}expected 2 inputs but got 0 inputs for model 'add_sub'. Got input(s) [], but missing required "
        "input(s) ['INPUT0','INPUT1']. Please provide all required input(s).",
    ),
    Case(
        "one input missing",
        add_sub(int32("INPUT0")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}expected 2 inputs but got 1 inputs for model 'add_sub'. Got input(s) ['INPUT0'], but missing "
        "required input(s) ['INPUT1']. Please provide all required input(s).",
    ),
    Case(
        "an error names the request by its id",
        add_sub(int32("INPUT0"), id="seven"),
        Code.INVALID_ARGUMENT,
        "[request id: seven] expected 2 inputs but got 1 inputs for model 'add_sub'. Got input(s) ['INPUT0'], but "
        "missing required input(s) ['INPUT1']. Please provide all required input(s).",
    ),
    Case(
        "one wrong input beside none of the right ones",
        add_sub(int32("OTHER")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}expected 2 inputs but got 1 inputs for model 'add_sub'. Got input(s) ['OTHER'], but missing "
        "required input(s) ['INPUT0','INPUT1']. Please provide all required input(s).",
    ),
    Case(
        "an optional input does not stand in for a required one",
        Infer("optional", []),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}expected number of inputs between 1 and 3 but got 0 inputs for model 'optional'. Got input(s) "
        "[], but missing required input(s) ['INPUT0']. Please provide all required input(s).",
    ),
    Case(
        "more inputs than the model has",
        add_sub(*VALID, int32("OTHER")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}expected 2 inputs but got 3 inputs for model 'add_sub'. Got input(s) "
        "['INPUT0','INPUT1','OTHER'], but missing required input(s) ]. Please provide all required input(s).",
    ),
    Case(
        "unknown input",
        add_sub(int32("INPUT0"), int32("OTHER")),
        Code.INVALID_ARGUMENT,
        "unexpected inference input 'OTHER' for model 'add_sub'",
    ),
    Case(
        "input twice",
        add_sub(int32("INPUT0"), int32("INPUT0")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input 'INPUT0' already exists in request",
    ),
    Case(
        "input twice, named by id",
        add_sub(int32("INPUT0"), int32("INPUT0"), id="a b"),
        Code.INVALID_ARGUMENT,
        "[request id: a b] input 'INPUT0' already exists in request",
    ),
    Case(
        "unknown output",
        add_sub(*VALID, outputs=[Output("OUTPUT0"), Output("OTHER")]),
        Code.INVALID_ARGUMENT,
        "unexpected inference output 'OTHER' for model 'add_sub'",
    ),
    Case(
        "output twice",
        add_sub(*VALID, outputs=[Output("OUTPUT0"), Output("OUTPUT0")]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}output 'OUTPUT0' already exists in request",
    ),
    Case(
        "an unknown output is reported before a missing input",
        add_sub(int32("INPUT0"), outputs=[Output("OTHER")]),
        Code.INVALID_ARGUMENT,
        "unexpected inference output 'OTHER' for model 'add_sub'",
    ),
]

TENSOR_CASES: Final = [
    Case(
        "wrong datatype",
        add_sub(Tensor("INPUT0", "FP32", (1, 16), raw=ROW), int32("INPUT1")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}inference input 'INPUT0' data-type is 'FP32', but model 'add_sub' expects 'INT32'",
    ),
    Case(
        "unknown datatype of a binary tensor",
        add_sub(Tensor("INPUT0", "INT33", (1, 16), raw=ROW), int32("INPUT1")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}inference input 'INPUT0' data-type is '<invalid>', but model 'add_sub' expects 'INT32'",
    ),
    Case(
        "wrong dimension",
        add_sub(int32("INPUT0", (1, 15), ROW[:60]), int32("INPUT1", (1, 15), ROW[:60])),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}unexpected shape for input 'INPUT0' for model 'add_sub'. Expected [-1,16], got [1,15]. "
        f"{BATCH_NOTE}",
    ),
    Case(
        "wrong rank",
        add_sub(int32("INPUT0", (1, 4, 4)), int32("INPUT1", (1, 4, 4))),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}unexpected shape for input 'INPUT0' for model 'add_sub'. Expected [-1,16], got [1,4,4]. "
        f"{BATCH_NOTE}",
    ),
    Case(
        "batch dimension left out",
        add_sub(int32("INPUT0", (1,)), int32("INPUT1", (1,))),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}unexpected shape for input 'INPUT0' for model 'add_sub'. Expected [-1,16], got [1]. {BATCH_NOTE}",
    ),
    Case(
        "wrong shape for a model that does not batch",
        Infer("add_sub_flat", [int32("INPUT0", (15,), ROW[:60]), int32("INPUT1", (15,), ROW[:60])]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}unexpected shape for input 'INPUT0' for model 'add_sub_flat'. Expected [16], got [15]. ",
    ),
    Case(
        "rank 0 for a model that batches",
        add_sub(int32("INPUT0", (), b""), int32("INPUT1", (), b"")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input 'INPUT0' has no shape but model requires batch dimension for 'add_sub'",
    ),
    Case(
        "batch sizes that differ",
        add_sub(int32("INPUT0", (1, 16)), int32("INPUT1", (2, 16), ROW * 2)),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input 'INPUT1' batch size does not match other inputs for 'add_sub'",
    ),
    Case(
        "batch too large",
        add_sub(int32("INPUT0", (9, 16), ROW * 9), int32("INPUT1", (9, 16), ROW * 9)),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}inference request batch-size must be <= 8 for 'add_sub'",
    ),
    Case(
        "too few bytes",
        add_sub(int32("INPUT0", raw=ROW[:60]), int32("INPUT1")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input byte size mismatch for input 'INPUT0' for model 'add_sub'. Expected 64, got 60",
    ),
    Case(
        "too many bytes",
        add_sub(int32("INPUT0"), int32("INPUT1", raw=ROW + b"x")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input byte size mismatch for input 'INPUT1' for model 'add_sub'. Expected 64, got 65",
    ),
    Case(
        "binary tensor of no bytes",
        add_sub(int32("INPUT0", raw=b""), int32("INPUT1")),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input byte size mismatch for input 'INPUT0' for model 'add_sub'. Expected 64, got 0",
    ),
    Case(
        "more bytes claimed by the shape than a tensor can have",
        Infer("image", [Tensor("INPUT0", "FP32", (1, 3, 2**31, 2**31), raw=b"\0" * 12)]),
        Code.INVALID_ARGUMENT,
        "byte size for tensor 'INPUT0' exceeds maximum size of 9223372036854775807",
    ),
]

STRING_CASES: Final = [
    Case(
        "too few strings",
        Infer("identity_bytes", [Tensor("INPUT0", "BYTES", (1, 3), raw=strings(b"a", b"b"))]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}expected 3 string elements for inference input 'INPUT0' for model 'identity_bytes', got 2",
    ),
    Case(
        "too many strings",
        Infer("identity_bytes", [Tensor("INPUT0", "BYTES", (1, 2), raw=strings(b"a", b"b", b"c"))]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}unexpected number of string elements 3 for inference input 'INPUT0' for model 'identity_bytes', "
        "expecting 2",
    ),
    Case(
        "a string's length cut short",
        Infer("identity_bytes", [Tensor("INPUT0", "BYTES", (1, 2), raw=strings(b"a") + b"\1\0")]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}incomplete string length indicator for inference input 'INPUT0' for model 'identity_bytes', "
        "expecting 4 bytes but only 2 bytes available. Please make sure the string length indicator is in one buffer.",
    ),
    Case(
        "a string cut short",
        Infer("identity_bytes", [Tensor("INPUT0", "BYTES", (1, 2), raw=strings(b"a", b"0123456789")[:-7])]),
        Code.INVALID_ARGUMENT,
        "incomplete string data for inference input 'INPUT0', expecting string of length 10 but only 3 bytes available",
    ),
    Case(
        "a string that claims four gigabytes",
        Infer("identity_bytes", [Tensor("INPUT0", "BYTES", (1, 1), raw=b"\xff\xff\xff\xffabc")]),
        Code.INVALID_ARGUMENT,
        "incomplete string data for inference input 'INPUT0', expecting string of length 4294967295 but only 3 bytes "
        "available",
    ),
]


def document(
    first: Mapping[str, Any] | None = None, *, drop: str = "", inputs: object = None, **members: object
) -> Http:
    """A request for ``add_sub`` in JSON with one thing different: the first input, or a member of the whole."""
    entry: dict[str, Any] = {"name": "INPUT0", "datatype": "INT32", "shape": [1, 16], "data": list(range(16))}
    second = {**entry, "name": "INPUT1"}
    entry = {**entry, **(first or {})}
    entry.pop(drop, None)
    whole: dict[str, Any] = {"inputs": [entry, second] if inputs is None else inputs, **members}
    return Http(json.dumps(whole).encode())


def identity(datatype: str, values: str, shape: str = "[1,2]") -> Http:
    """A request in JSON, with the text of its data as given, for the model that answers its input."""
    text = f'{{"inputs":[{{"name":"INPUT0","datatype":"{datatype}","shape":{shape},"data":{values}}}]}}'
    return Http(text.encode(), path=path(f"identity_{datatype.lower()}"))


MISSING: Final = "attempt to access non-existing object member"
NO_SOURCE: Final = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But"
)
NOT_STRING: Final = "attempt to access JSON non-string as string"
NOT_ARRAY: Final = "attempt to access JSON non-array as array"
NOT_BOOLEAN: Final = "attempt to access JSON non-boolean as boolean"
NOT_SIGNED: Final = "attempt to access JSON non-signed-integer as signed-integer"
NOT_UNSIGNED: Final = "attempt to access JSON non-unsigned-integer as unsigned-integer"
NOT_NUMBER: Final = "attempt to access JSON non-number as double"

NO_SEQUENCE_IDS: Final[Sequence[object]] = (-1, 1.5, True, None, [], {}, 2**64)

MEMBER_CASES: Final = [
    Case("no inputs member", Http(b"{}"), Code.INTERNAL, f"Unable to parse 'inputs': {MISSING} 'inputs'"),
    Case("a root that is an array", Http(b"[1]"), Code.INTERNAL, f"Unable to parse 'inputs': {MISSING} 'inputs'"),
    Case("a root that is null", Http(b"null"), Code.INTERNAL, f"Unable to parse 'inputs': {MISSING} 'inputs'"),
    Case("inputs that are an object", document(inputs={}), Code.INTERNAL, f"Unable to parse 'inputs': {NOT_ARRAY}"),
    Case("inputs that are null", Http(b'{"inputs":null}'), Code.INTERNAL, f"Unable to parse 'inputs': {NOT_ARRAY}"),
    Case("an id that is a number", document(id=5), Code.INTERNAL, f"Unable to parse 'id': {NOT_STRING}"),
    Case("an id that is null", document(id=None), Code.INTERNAL, f"Unable to parse 'id': {NOT_STRING}"),
    Case(
        "parameters that are an array",
        document(parameters=[]),
        Code.INTERNAL,
        "failed to get request params.: attempt to get members for non-object",
    ),
    Case(
        "parameters that are null",
        document(parameters=None),
        Code.INTERNAL,
        "failed to get request params.: attempt to get members for non-object",
    ),
    Case(
        "a parameter that is an array",
        document(parameters={"mood": [1]}),
        Code.INVALID_ARGUMENT,
        "parameter 'mood' has invalid type. It should be either 'int', 'bool', or 'string'.",
    ),
    Case(
        "a parameter that is null",
        document(parameters={"mood": None}),
        Code.INVALID_ARGUMENT,
        "parameter 'mood' has invalid type. It should be either 'int', 'bool', or 'string'.",
    ),
    Case(
        "a parameter that is an object",
        document(parameters={"first": 1, "mood": {}}),
        Code.INVALID_ARGUMENT,
        "parameter 'mood' has invalid type. It should be either 'int', 'bool', or 'string'.",
    ),
    Case(
        "a timeout that is a string",
        document(parameters={"timeout": "soon"}),
        Code.INTERNAL,
        f"Unable to parse 'timeout': {NOT_UNSIGNED}",
    ),
    Case(
        "a timeout that is negative",
        document(parameters={"timeout": -1}),
        Code.INTERNAL,
        f"Unable to parse 'timeout': {NOT_UNSIGNED}",
    ),
    Case(
        "a priority that is a fraction",
        document(parameters={"priority": 1.5}),
        Code.INTERNAL,
        f"Unable to parse 'priority': {NOT_UNSIGNED}",
    ),
    *(
        Case(
            f"a sequence_id of {value!r}",
            document(parameters={"sequence_id": value}),
            Code.INTERNAL,
            f"Unable to parse 'sequence_id': {NOT_STRING}",
        )
        for value in NO_SEQUENCE_IDS
    ),
    *(
        Case(
            f"a {name} of {value!r}",
            document(parameters={name: value}),
            Code.INTERNAL,
            f"Unable to parse '{name}': {NOT_BOOLEAN}",
        )
        for name in ("sequence_start", "sequence_end", "binary_data_output")
        for value in ("true", 0, None)
    ),
    Case(
        "a priority that is a string",
        document(parameters={"priority": "high"}),
        Code.INTERNAL,
        f"Unable to parse 'priority': {NOT_UNSIGNED}",
    ),
    Case(
        "a priority that is negative",
        document(parameters={"priority": -1}),
        Code.INTERNAL,
        f"Unable to parse 'priority': {NOT_UNSIGNED}",
    ),
    Case(
        "a priority of more than 64 bits",
        document(parameters={"priority": 2**64}),
        Code.INTERNAL,
        f"Unable to parse 'priority': {NOT_UNSIGNED}",
    ),
    Case(
        "binary_data_output that is a number",
        document(parameters={"binary_data_output": 1}),
        Code.INTERNAL,
        f"Unable to parse 'binary_data_output': {NOT_BOOLEAN}",
    ),
    Case("an input that is a number", document(inputs=[5]), Code.INVALID_ARGUMENT, f"{NO_SOURCE} no field is set"),
    Case("an input without data", document(drop="data"), Code.INVALID_ARGUMENT, f"{NO_SOURCE} no field is set"),
    Case(
        "an input whose parameters are no object",
        document({"parameters": 5}, drop="data"),
        Code.INVALID_ARGUMENT,
        f"{NO_SOURCE} no field is set",
    ),
    Case(
        "an input with two sources of data",
        document({"parameters": {"binary_data_size": 64}}),
        Code.INVALID_ARGUMENT,
        f"{NO_SOURCE} set 'data' 'binary_data_size'",
    ),
    Case(
        "an input with its data and a region",
        document({"parameters": {"shared_memory_region": "r"}}),
        Code.INVALID_ARGUMENT,
        f"{NO_SOURCE} set 'data' 'shared_memory_region'",
    ),
    Case(
        "an input with every source of data",
        document({"parameters": {"shared_memory_region": 1, "binary_data_size": "x"}}),
        Code.INVALID_ARGUMENT,
        f"{NO_SOURCE} set 'data' 'binary_data_size' 'shared_memory_region'",
    ),
    Case("an input without name", document(drop="name"), Code.INTERNAL, f"Unable to parse 'name': {MISSING} 'name'"),
    Case("a name that is a number", document({"name": 1}), Code.INTERNAL, f"Unable to parse 'name': {NOT_STRING}"),
    Case(
        "an input without datatype",
        document(drop="datatype"),
        Code.INTERNAL,
        f"Unable to parse 'datatype': {MISSING} 'datatype'",
    ),
    Case(
        "a datatype that is null",
        document({"datatype": None}),
        Code.INTERNAL,
        f"Unable to parse 'datatype': {NOT_STRING}",
    ),
    Case(
        "an unknown datatype",
        document({"datatype": "INT33"}),
        Code.INVALID_ARGUMENT,
        "invalid datatype for input INPUT0",
    ),
    Case(
        "an input without shape",
        document(drop="shape"),
        Code.INTERNAL,
        f"Unable to parse 'shape': {MISSING} 'shape'",
    ),
    Case("a shape that is a number", document({"shape": 16}), Code.INTERNAL, f"Unable to parse 'shape': {NOT_ARRAY}"),
    Case(
        "a dimension that is negative",
        document({"shape": [-1, 16]}),
        Code.INTERNAL,
        f"Unable to parse 'shape': {NOT_UNSIGNED}",
    ),
    Case(
        "a dimension that is a float",
        document({"shape": [1.0, 16]}),
        Code.INTERNAL,
        f"Unable to parse 'shape': {NOT_UNSIGNED}",
    ),
    Case(
        "a dimension that is a string",
        document({"shape": ["1", 16]}),
        Code.INTERNAL,
        f"Unable to parse 'shape': {NOT_UNSIGNED}",
    ),
    Case(
        "a dimension beyond 64 bits",
        document({"shape": [2**64, 16]}),
        Code.INTERNAL,
        f"Unable to parse 'shape': {NOT_UNSIGNED}",
    ),
    Case(
        "a dimension that wraps to a negative one",
        document({"shape": [1, 2**63]}),
        Code.INVALID_ARGUMENT,
        "invalid shape for input 'INPUT0': shape [1,-9223372036854775808] contains one or more invalid dimensions",
    ),
    Case(
        "a shape whose product overflows",
        document({"shape": [I64_MAX, 2]}),
        Code.INVALID_ARGUMENT,
        f"invalid shape for input 'INPUT0': shape [{I64_MAX},2] causes total element count to exceed maximum size of "
        f"{I64_MAX}",
    ),
    Case(
        "a shape whose size in bytes overflows",
        document({"shape": [2**62]}),
        Code.INVALID_ARGUMENT,
        f"byte size overflow for input 'INPUT0': element count ({2**62}) * data type size (4) exceeds maximum allowed "
        f"size ({I64_MAX})",
    ),
    Case(
        "a shape that is too large to be sent as JSON",
        document({"shape": [1, 100_000_000]}),
        Code.INVALID_ARGUMENT,
        "JSON input 'INPUT0' has a byte_size (400000000 bytes) that exceeds the maximum allowed value of 67108864 "
        "bytes. Use --http-max-input-size to increase the limit.",
    ),
    Case("data that is a number", document({"data": 5}), Code.INTERNAL, f"Unable to parse 'data': {NOT_ARRAY}"),
    Case("data that is null", document({"data": None}), Code.INTERNAL, f"Unable to parse 'data': {NOT_ARRAY}"),
    Case(
        "too much data",
        document({"data": list(range(17))}),
        Code.INTERNAL,
        "Unable to parse 'data': Shape does not match true shape of 'data' field",
    ),
    Case(
        "too much data, and of the wrong type",
        document({"data": [*range(16), "x"]}),
        Code.INTERNAL,
        "Unable to parse 'data': Shape does not match true shape of 'data' field",
    ),
    Case(
        "too little data",
        document({"data": list(range(15))}),
        Code.INTERNAL,
        "Failed to parse 'data' field: shape does not match true shape",
    ),
    Case(
        "no data in the array",
        document({"data": []}),
        Code.INTERNAL,
        "Failed to parse 'data' field: shape does not match true shape",
    ),
    Case(
        "binary_data_size that is a string",
        document({"parameters": {"binary_data_size": "64"}}, drop="data"),
        Code.INTERNAL,
        f"Unable to parse 'binary_data_size': {NOT_UNSIGNED}",
    ),
    Case(
        "binary_data_size that is negative",
        document({"parameters": {"binary_data_size": -1}}, drop="data"),
        Code.INTERNAL,
        f"Unable to parse 'binary_data_size': {NOT_UNSIGNED}",
    ),
    Case(
        "binary_data_size with no byte behind the JSON",
        document({"parameters": {"binary_data_size": 64}}, drop="data"),
        Code.INVALID_ARGUMENT,
        "unexpected size for input 'INPUT0', expecting 64 additional bytes for model 'add_sub'",
    ),
    Case("outputs that are an object", document(outputs={}), Code.INTERNAL, f"Unable to parse 'outputs': {NOT_ARRAY}"),
    Case(
        "an output that is a string",
        document(outputs=["OUTPUT0"]),
        Code.INTERNAL,
        f"Unable to parse 'name': {MISSING} 'name'",
    ),
    Case(
        "an output whose name is a number",
        document(outputs=[{"name": 0}]),
        Code.INTERNAL,
        f"Unable to parse 'name': {NOT_STRING}",
    ),
    Case(
        "binary_data that is a string",
        document(outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": "true"}}]),
        Code.INTERNAL,
        f"Unable to parse 'binary_data': {NOT_BOOLEAN}",
    ),
    Case(
        "the id is read before the inputs",
        Http(b'{"inputs":5,"id":5}'),
        Code.INTERNAL,
        f"Unable to parse 'id': {NOT_STRING}",
    ),
    Case(
        "the parameters are read before the inputs",
        Http(b'{"inputs":5,"parameters":5}'),
        Code.INTERNAL,
        "failed to get request params.: attempt to get members for non-object",
    ),
    Case(
        "the inputs are read before the outputs",
        Http(b'{"outputs":5,"inputs":[]}'),
        Code.INTERNAL,
        f"Unable to parse 'outputs': {NOT_ARRAY}",
    ),
    Case(
        "the first of two members with one name counts",
        Http(b'{"inputs":5,"inputs":[]}'),
        Code.INTERNAL,
        f"Unable to parse 'inputs': {NOT_ARRAY}",
    ),
]


def element_cases() -> list[Case]:
    """Every datatype with every kind of JSON value that it does not take."""
    signed = ("INT8", "INT16", "INT32", "INT64")
    unsigned = ("UINT8", "UINT16", "UINT32", "UINT64")
    never = ("null", '"1"', "{}")
    refused: list[tuple[Sequence[str], str, Sequence[str]]] = [
        (("BOOL",), NOT_BOOLEAN, ("0", "1.0", *never)),
        (signed, NOT_SIGNED, ("1.0", "1e2", "true", "9223372036854775808", "NaN", *never)),
        (unsigned, NOT_UNSIGNED, ("1.0", "-1", "false", "18446744073709551616", *never)),
        (("FP32", "FP64"), NOT_NUMBER, ("true", *never)),
    ]
    cases = [
        Case(
            f"{datatype} from {value}",
            identity(datatype, f"[{value},{value}]"),
            Code.INTERNAL,
            f"Unable to parse 'data': {text}",
        )
        for datatypes, text, values in refused
        for datatype in datatypes
        for value in values
    ]
    cases += [
        Case(
            f"BYTES from {value}",
            identity("BYTES", f'["a",{value}]'),
            Code.INTERNAL,
            f"Unable to parse JSON bytes array: {NOT_STRING}",
        )
        for value in ("1", "1.5", "true", "null", "{}")
    ]
    cases += [
        Case(
            f"{datatype} from JSON",
            identity(datatype, "[1.0,2.0]"),
            Code.INVALID_ARGUMENT,
            f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input INPUT0",
        )
        for datatype in ("FP16", "BF16")
    ]
    cases += [
        Case(
            f"{datatype} to JSON",
            Infer(f"identity_{datatype.lower()}", [Tensor("INPUT0", datatype, (1, 2), raw=b"\0" * 4)]),
            Code.INVALID_ARGUMENT,
            f"sending {datatype} data via JSON is not supported. Please use the binary data format for output",
        )
        for datatype in ("FP16", "BF16")
    ]
    cases += [
        Case(
            "too few strings in JSON",
            identity("BYTES", '["a"]'),
            Code.INVALID_ARGUMENT,
            f"{UNKNOWN_ID}expected 2 string elements for inference input 'INPUT0' for model 'identity_bytes', got 1",
        ),
        Case(
            "too many strings in JSON",
            identity("BYTES", '["a","b","c"]'),
            Code.INVALID_ARGUMENT,
            f"{UNKNOWN_ID}unexpected number of string elements 3 for inference input 'INPUT0' for model "
            "'identity_bytes', expecting 2",
        ),
        Case(
            "no string in JSON",
            identity("BYTES", "[]"),
            Code.INTERNAL,
            "Failed to parse 'data' field: output buffer unavailable",
        ),
        Case(
            "JSON nested too deep",
            identity("INT32", "[" * 100 + "1,2" + "]" * 100),
            Code.INVALID_ARGUMENT,
            "Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (100)",
        ),
        Case(
            "JSON strings nested too deep",
            identity("BYTES", "[" * 100 + '"a","b"' + "]" * 100),
            Code.INVALID_ARGUMENT,
            "JSON nesting depth exceeds maximum allowed limit (100)",
        ),
        Case(
            "too little data in a nested array",
            identity("INT32", "[[1]]"),
            Code.INTERNAL,
            "Failed to parse 'data' field: shape does not match true shape",
        ),
    ]
    return cases


def cut(text: str) -> Http:
    return Http(text.encode())


PARSE: Final = "failed to parse the request JSON buffer: "

SYNTAX_CASES: Final = [
    Case(f"JSON {text!r}", cut(text), Code.INTERNAL, f"{PARSE}{reason} at {offset}")
    for text, reason, offset in (
        (" ", "The document is empty.", 1),
        ("]", "The document is empty.", 0),
        ("{", "Missing a name for object member.", 1),
        ("{,}", "Missing a name for object member.", 1),
        ("{a:1}", "Missing a name for object member.", 1),
        ("{'a':1}", "Missing a name for object member.", 1),
        ('{"a":1,}', "Missing a name for object member.", 7),
        ('{"a"', "Missing a colon after a name of object member.", 4),
        ('{"a" 1}', "Missing a colon after a name of object member.", 5),
        ('{"a":', "Invalid value.", 5),
        ('{"a":}', "Invalid value.", 5),
        ('{"a":tRue}', "Invalid value.", 6),
        ('{"a":+1}', "Invalid value.", 5),
        ('{"a":.5}', "Invalid value.", 5),
        ('{"a":-}', "Invalid value.", 6),
        ('{"a":nan}', "Invalid value.", 6),
        ("// note", "Invalid value.", 0),
        ('{"a":1', "Missing a comma or '}' after an object member.", 6),
        ('{"a":1 "b":2}', "Missing a comma or '}' after an object member.", 7),
        ('{"a":1]', "Missing a comma or '}' after an object member.", 6),
        ('{"a":01}', "Missing a comma or '}' after an object member.", 6),
        ('{"inputs":[1 2]}', "Missing a comma or ']' after an array element.", 13),
        ('{"a":[1,2}', "Missing a comma or ']' after an array element.", 9),
        ("[1,]", "Invalid value.", 3),
        ("[,1]", "Invalid value.", 1),
        ("[", "Invalid value.", 1),
        ("{}x", "The document root must not be followed by other values.", 2),
        ("{} {}", "The document root must not be followed by other values.", 3),
        ('{"a":"b', "Missing a closing quotation mark in string.", 7),
        ('{"a":"b\0c"}', "Missing a closing quotation mark in string.", 7),
        ('{"a":"\\x"}', "Invalid escape character in string.", 6),
        ('{"a":"\\u12G4"}', "Incorrect hex digit after \\u escape in string.", 6),
        ('{"a":"\\ud800"}', "The surrogate pair in string is invalid.", 6),
        ('{"a":"\\ud800\\u0041"}', "The surrogate pair in string is invalid.", 6),
        ('{"a":"\\udc00"}', "The surrogate pair in string is invalid.", 6),
        ('{"a":"b\x01"}', "Invalid encoding in string.", 7),
        ('{"a":1e400}', "Number too big to be stored in double.", 5),
        ('{"a":1.}', "Miss fraction part in number.", 7),
        ('{"a":1e}', "Miss exponent in number.", 7),
        ('{"a":1e+}', "Miss exponent in number.", 8),
    )
]


def framed(header_length: str, *, size: int = 64, tail: bytes = ROW * 2) -> Http:
    """A binary request for ``add_sub`` whose header length is as given; ``{n}`` in it stands for the true one."""
    listed = [
        {"name": name, "datatype": "INT32", "shape": [1, 16], "parameters": {"binary_data_size": bytes_}}
        for name, bytes_ in (("INPUT0", 64), ("INPUT1", size))
    ]
    text = json.dumps({"inputs": listed}).encode()
    return Http(text + tail, [(HEADER_LENGTH, header_length.format(n=len(text), all=len(text) + len(tail)))])


FRAMED: Final = framed("{n}")
FRAMED_JSON: Final = int(FRAMED.headers[0][1])
FRAMED_SIZE: Final = len(FRAMED.body)

FRAMING_CASES: Final = [
    Case(
        "a header length that is no number",
        framed("abc"),
        Code.INVALID_ARGUMENT,
        f"Unable to parse {HEADER_LENGTH}, got: abc",
    ),
    Case("an empty header length", framed(""), Code.INVALID_ARGUMENT, f"Unable to parse {HEADER_LENGTH}, got: "),
    Case(
        "a header length beyond 32 bits",
        framed("99999999999"),
        Code.INVALID_ARGUMENT,
        f"Unable to parse {HEADER_LENGTH}, value is out of range [ -2147483648, 2147483647 ], got: 99999999999",
    ),
    Case(
        "a negative header length",
        framed("-1"),
        Code.INVALID_ARGUMENT,
        f"inference header size should be in range (0, {FRAMED_SIZE}), got: -1",
    ),
    Case(
        "a header length beyond the body",
        framed(str(FRAMED_SIZE + 1)),
        Code.INVALID_ARGUMENT,
        f"inference header size should be in range (0, {FRAMED_SIZE}), got: {FRAMED_SIZE + 1}",
    ),
    Case(
        "a header length one too short",
        framed(str(FRAMED_JSON - 1)),
        Code.INTERNAL,
        f"{PARSE}Missing a comma or '}}' after an object member. at {FRAMED_JSON - 1}",
    ),
    Case(
        "a header length too long, over bytes that are no end of JSON",
        framed(str(FRAMED_JSON + 1), tail=b"\xff" * 128),
        Code.INTERNAL,
        f"{PARSE}The document root must not be followed by other values. at {FRAMED_JSON}",
    ),
    Case(
        "a header length too long, over bytes that look like the end of JSON",
        framed(str(FRAMED_JSON + 4), tail=b"\0" * 128),
        Code.INVALID_ARGUMENT,
        "unexpected size for input 'INPUT1', expecting 4 additional bytes for model 'add_sub'",
    ),
    Case(
        "fewer bytes than announced",
        framed("{n}", tail=ROW + ROW[:40]),
        Code.INVALID_ARGUMENT,
        "unexpected size for input 'INPUT1', expecting 24 additional bytes for model 'add_sub'",
    ),
    Case(
        "more bytes announced than any body has",
        framed("{n}", size=2**63),
        Code.INVALID_ARGUMENT,
        f"unexpected size for input 'INPUT1', expecting {2**63 - 64} additional bytes for model 'add_sub'",
    ),
    Case(
        "more bytes than announced",
        framed("{n}", tail=ROW * 2 + b"!"),
        Code.INVALID_ARGUMENT,
        "unexpected additional input data for model 'add_sub'",
    ),
    Case(
        "bytes that no input asked for",
        Http(document().body + b"!", [(HEADER_LENGTH, str(len(document().body)))]),
        Code.INVALID_ARGUMENT,
        "unexpected additional input data for model 'add_sub'",
    ),
    Case(
        "binary data without a header length",
        Http(FRAMED.body.replace(ROW, b"\xff" * 64)),
        Code.INTERNAL,
        f"{PARSE}The document root must not be followed by other values. at {FRAMED_JSON}",
    ),
    Case(
        "the model is looked up before the body is read",
        Http(b"{", path=path("missing")),
        Code.NOT_FOUND,
        "Request for unknown model: 'missing' is not found",
    ),
    Case(
        "the model is looked up before the header length",
        Http(b"{}", [(HEADER_LENGTH, "abc")], path("missing")),
        Code.NOT_FOUND,
        "Request for unknown model: 'missing' is not found",
    ),
]

SHARED_MEMORY_DISABLED: Final = (
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
)
RESERVED: Final = "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."


def asking(**parameters: object) -> Http:
    """A request for ``add_sub`` that says how it wants its first output."""
    return document(outputs=[{"name": "OUTPUT0", "parameters": parameters}])


UNSUPPORTED_CASES: Final = [
    *(
        Case(
            f"classes of {datatype}",
            Infer(
                f"identity_{datatype.lower()}",
                [Tensor("INPUT0", datatype, (1, 2), raw=raw)],
                [Output("OUTPUT0", binary=True, classes=1)],
            ),
            Code.INVALID_ARGUMENT,
            f"class result not available for output due to unsupported type '{datatype}'",
        )
        for datatype, raw in (
            ("BOOL", b"\0" * 2),
            ("FP16", b"\0" * 4),
            ("BF16", b"\0" * 4),
            ("BYTES", strings(b"a", b"b")),
        )
    ),
    Case(
        "classes of a tensor that is too large",
        Infer(
            "identity_int8",
            [Tensor("INPUT0", "INT8", (1, 1_000_001), raw=b"\0" * 1_000_001)],
            [Output("OUTPUT0", classes=1)],
        ),
        Code.INVALID_ARGUMENT,
        "classification output tensor too large",
    ),
    Case(
        "classes of an output in shared memory",
        asking(classification=0, shared_memory_region="region", shared_memory_byte_size=64),
        Code.INVALID_ARGUMENT,
        "Output can't set both 'shared_memory_region' and 'classification'",
    ),
    Case(
        "a negative number of classes",
        asking(classification=-1),
        Code.INTERNAL,
        f"Unable to set 'classification': {NOT_UNSIGNED}",
    ),
    Case(
        "a classification that is no number",
        asking(classification="x", binary_data="x"),
        Code.INTERNAL,
        f"Unable to set 'classification': {NOT_UNSIGNED}",
    ),
    *(
        Case(
            f"the reserved parameter {name}",
            document(parameters={"mood": 1, name: value}),
            Code.INVALID_ARGUMENT,
            RESERVED,
        )
        for name, value in (("triton_", 1), ("triton_enable_empty_final_response", True))
    ),
]


def coded(body: bytes, coding: str, headers: Headers = (), place: str = "add_sub") -> Http:
    return Http(body, [*headers, ("Content-Encoding", coding)], path(place))


BROKEN: Final = "failed to decompress the request body:"
CODED: Final = document().body
GZIP: Final = gzip.compress(CODED, mtime=0)
ZLIB: Final = zlib.compress(CODED)
UNDECODED_CASES: Final = [
    *(
        Case(
            f"a body that is compressed with {coding}",
            coded(CODED, coding),
            Code.UNIMPLEMENTED,
            "Unsupported compression type",
        )
        for coding in ("br", "zstd", "compress", "gzip, gzip", "gzip;q=1", "*")
    ),
    *(
        Case(
            f"{name} that is said to be {coding}",
            coded(body, coding),
            Code.INVALID_ARGUMENT,
            text,
        )
        for coding in ("gzip", "deflate")
        for name, body, text in (
            ("no body", b"", "nothing to be decompressed"),
            ("a plain body", CODED, f"{BROKEN} corrupt deflate stream"),
            ("bare deflate", ZLIB[2:-4], f"{BROKEN} corrupt deflate stream"),
            ("zlib cut short", ZLIB[:-20], f"{BROKEN} incomplete deflate stream"),
            ("zlib without its checksum", ZLIB[:-4], f"{BROKEN} incomplete deflate stream"),
            ("zlib with another checksum", ZLIB[:-1] + bytes([ZLIB[-1] ^ 1]), f"{BROKEN} corrupt deflate stream"),
            ("gzip cut short", GZIP[:-20], f"{BROKEN} incomplete deflate stream"),
            ("gzip without its checksum", GZIP[:-8], f"{BROKEN} unexpected end of file"),
            ("the start of gzip", GZIP[:5], f"{BROKEN} unexpected end of file"),
            (
                "gzip with another checksum",
                GZIP[:-8] + bytes([GZIP[-8] ^ 1]) + GZIP[-7:],
                f"{BROKEN} corrupt gzip stream does not have a matching checksum",
            ),
        )
    ),
    Case(
        "compressed JSON that is none",
        coded(gzip.compress(b"{"), "gzip"),
        Code.INTERNAL,
        f"{PARSE}Missing a name for object member. at 1",
    ),
    Case(
        "a compressed body of nothing",
        coded(gzip.compress(b""), "gzip"),
        Code.INVALID_ARGUMENT,
        "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in "
        "'add_sub' model configuration",
    ),
    Case(
        "a header length beyond the body that was compressed",
        coded(GZIP, "gzip", [(HEADER_LENGTH, str(len(CODED) + 1))]),
        Code.INVALID_ARGUMENT,
        f"inference header size should be in range (0, {len(CODED)}), got: {len(CODED) + 1}",
    ),
    Case(
        "the model is looked up before the coding",
        coded(CODED, "br", place="missing"),
        Code.NOT_FOUND,
        "Request for unknown model: 'missing' is not found",
    ),
]


def raw(model: str, body: bytes) -> Http:
    """A request that is nothing but a tensor."""
    return Http(body, [(HEADER_LENGTH, "0")], path(model))


RAW_CASES: Final = [
    *(
        Case(
            f"a raw tensor for a model of {count} inputs: {model}",
            raw(model, ROW),
            Code.INVALID_ARGUMENT,
            f"{UNKNOWN_ID}Raw request must only have 1 input (found 1) to be deduced but got {count} inputs in "
            f"'{model}' model configuration",
        )
        for model, count in (("add_sub", 2), ("optional", 3))
    ),
    Case(
        "an empty body",
        Http(b""),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'add_sub' model "
        "configuration",
    ),
    Case(
        "a raw tensor of two free dimensions",
        raw("image", ROW),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}The shape of the raw input 'INPUT0' can not be deduced because there are more than one "
        "variable-sized dimension",
    ),
    Case(
        "a raw tensor of strings",
        raw("identity_bytes", b"abc"),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}For BYTE datatype raw input 'INPUT0', the model must have input shape [1]",
    ),
    Case(
        "a raw tensor of no whole number of elements",
        raw("identity_int32", ROW[:6]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input byte size mismatch for input 'INPUT0' for model 'identity_int32'. Expected 4, got 6",
    ),
    Case(
        "a raw tensor too small for a fixed shape",
        raw("reshaped", ROW[:60]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input byte size mismatch for input 'INPUT0' for model 'reshaped'. Expected 64, got 60",
    ),
    Case(
        "a raw tensor of two rows",
        raw("reshaped", ROW * 2),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input byte size mismatch for input 'INPUT0' for model 'reshaped'. Expected 64, got 128",
    ),
    Case(
        "JSON that is sent as a raw tensor",
        Http(document().body, [(HEADER_LENGTH, "0")]),
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'add_sub' model "
        "configuration",
    ),
]

SHARED_MEMORY_CASES: Final = [
    *(
        Case(
            f"{order} where clients may not use shared memory: {place}",
            Http(b"{", path=f"/v2/{place}/{order}"),
            Code.UNIMPLEMENTED,
            SHARED_MEMORY_DISABLED,
        )
        for order in ("register", "unregister")
        for place in (
            "systemsharedmemory",
            "systemsharedmemory/region/r",
            "cudasharedmemory",
            "cudasharedmemory/region/r",
        )
    ),
    Case(
        "an output in shared memory where clients may not use any",
        asking(shared_memory_region="region", shared_memory_byte_size=64),
        Code.NOT_FOUND,
        "Unable to find shared memory region: 'region'",
    ),
    Case(
        "an input in shared memory where clients may not use any",
        document({"parameters": {"shared_memory_region": "region", "shared_memory_byte_size": 64}}, drop="data"),
        Code.NOT_FOUND,
        "Unable to find shared memory region: 'region'",
    ),
]


def repository(path: str, body: bytes = b"", *, inside: str = "") -> Http:
    return Http(body, path=f"/v2/repository{inside}{path}")


LOAD, UNLOAD = "/models/add_sub/load", "/models/add_sub/unload"
NO_REPOSITORY_NAME: Final = "'repository_name' specification is not supported"
NOT_A_STRING: Final = "attempt to access JSON non-string as string"
NO_SUCH_PARAMETER: Final = "unexpected error on creating Triton parameter"

REPOSITORY_CASES: Final = [
    *(
        Case(f"a repository by its name: {path}", repository(path, inside="/r"), Code.UNIMPLEMENTED, NO_REPOSITORY_NAME)
        for path in ("/index", LOAD, UNLOAD)
    ),
    *(
        Case(
            f"a body that is no JSON: {path}",
            repository(path, b"{"),
            Code.INTERNAL,
            "failed to parse the request JSON buffer: Missing a name for object member. at 1",
        )
        for path in ("/index", LOAD, UNLOAD)
    ),
    *(
        Case(
            f"an index that is asked for with ready {value}",
            repository("/index", b'{"ready": %b}' % value.encode()),
            Code.INVALID_ARGUMENT,
            "Invalid value for 'ready': expected a boolean",
        )
        for value in ("1", "null", '"true"', "[true]")
    ),
    Case(
        "load parameters that are no object",
        repository(LOAD, b'{"parameters": [1]}'),
        Code.INTERNAL,
        "attempt to get members for non-object",
    ),
    Case(
        "a load parameter that is no string", repository(LOAD, b'{"parameters": {"x": 1}}'), Code.INTERNAL, NOT_A_STRING
    ),
    Case(
        "a configuration that is no string",
        repository(LOAD, b'{"parameters": {"config": {}}}'),
        Code.INTERNAL,
        NOT_A_STRING,
    ),
    Case(
        "an unknown load parameter",
        repository(LOAD, b'{"parameters": {"config": "{}", "x": "1"}}'),
        Code.INTERNAL,
        NO_SUCH_PARAMETER,
    ),
    Case(
        "dependents that are no boolean",
        repository(UNLOAD, b'{"parameters": {"unload_dependents": 1}}'),
        Code.INTERNAL,
        "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean",
    ),
]


GENERATE_MEMBERS: Final = [
    ("no body", "add_sub", "", Code.INTERNAL, f"{PARSE}The document is empty. at 0"),
    ("no JSON", "add_sub", "{", Code.INTERNAL, f"{PARSE}Missing a name for object member. at 1"),
    ("a list", "add_sub", "[1]", Code.INTERNAL, "attempt to get members for non-object"),
    ("an id that is a number", "add_sub", '{"id": 1}', Code.INTERNAL, f"Unable to parse 'id': {NOT_STRING}"),
    ("unknown model", "missing", "{", Code.NOT_FOUND, "Request for unknown model: 'missing' is not found"),
    (
        "no input",
        "add_sub",
        '{"id": "seven", "mood": 1}',
        Code.INVALID_ARGUMENT,
        (
            "[request id: seven] expected 2 inputs but got 0 inputs for model 'add_sub'. Got input(s) [], but missing "
            "required input(s) ['INPUT0','INPUT1']. Please provide all required input(s)."
        ),
    ),
    (
        "an input without elements",
        "identity_int32",
        '{"INPUT0": []}',
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input 'INPUT0' has no shape but model requires batch dimension for 'identity_int32'",
    ),
    (
        "a string without list for numbers",
        "identity_int32",
        '{"INPUT0": "1"}',
        Code.INTERNAL,
        f"Unable to parse 'data': {NOT_SIGNED}",
    ),
    ("null", "identity_fp32", '{"INPUT0": null}', Code.INTERNAL, f"Unable to parse 'data': {NOT_NUMBER}"),
    (
        "numbers for strings",
        "identity_bytes",
        '{"INPUT0": ["a", 1]}',
        Code.INTERNAL,
        f"Unable to parse JSON bytes array: {NOT_STRING}",
    ),
    (
        "lists in lists",
        "identity_int32",
        '{"INPUT0": [[1, 2], [3, 4]]}',
        Code.INTERNAL,
        "Unable to parse 'data': Shape does not match true shape of 'data' field",
    ),
    (
        "empty lists in lists",
        "identity_int32",
        '{"INPUT0": [1, []]}',
        Code.INTERNAL,
        "Failed to parse 'data' field: shape does not match true shape",
    ),
    *(
        (
            f"{count} elements for rows of 16",
            "add_sub",
            json.dumps({"INPUT0": [1] * count}),
            Code.INVALID_ARGUMENT,
            "The schema can not convert input 'INPUT0' to tensor with proper shape",
        )
        for count in (1, 17)
    ),
    (
        "more elements than a model without batches takes",
        "add_sub_flat",
        json.dumps({"INPUT0": [1] * 32}),
        Code.INVALID_ARGUMENT,
        "The schema can not convert input 'INPUT0' to tensor with proper shape",
    ),
    (
        "half precision",
        "identity_fp16",
        '{"INPUT0": [1.0]}',
        Code.INVALID_ARGUMENT,
        "receiving FP16 data via JSON is not supported. Please use the binary data format for input INPUT0",
    ),
    (
        "an input twice",
        "identity_bytes",
        '{"INPUT0": "a", "INPUT0": "b"}',
        Code.INVALID_ARGUMENT,
        f"{UNKNOWN_ID}input 'INPUT0' already exists in request",
    ),
    (
        "an input as a parameter as well",
        "identity_bytes",
        '{"INPUT0": "a", "parameters": {"INPUT0": "b"}}',
        Code.INVALID_ARGUMENT,
        f"Converting keyword: 'parameters': {UNKNOWN_ID}input 'INPUT0' already exists in request",
    ),
    (
        "parameters that are no object",
        "identity_bytes",
        '{"parameters": [1]}',
        Code.INTERNAL,
        "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object",
    ),
    *(
        (
            f"a parameter that is {value}",
            "identity_bytes",
            f'{{"mood": {value}}}',
            Code.INVALID_ARGUMENT,
            "parameter 'mood' has invalid type. It should be either 'int', 'bool', or 'string'.",
        )
        for value in ("[1]", "{}", "null")
    ),
    (
        "a parameter of the wrong type among the parameters",
        "identity_bytes",
        '{"parameters": {"mood": {}}}',
        Code.INVALID_ARGUMENT,
        (
            "Converting keyword: 'parameters': parameter 'mood' has invalid type. It should be either 'int', 'bool', "
            "or 'string'."
        ),
    ),
]

GENERATE_CASES: Final = [
    case
    for verb in ("generate", "generate_stream")
    for case in [
        *(
            Case(f"{verb}: {name}", Http(text.encode(), path=f"/v2/models/{model}/{verb}"), code, error)
            for name, model, text, code, error in GENERATE_MEMBERS
        ),
        Case(
            f"{verb}: unknown version",
            Http(b"{}", path=f"/v2/models/add_sub/versions/99/{verb}"),
            Code.NOT_FOUND,
            "Request for unknown model: 'add_sub' version 99 is not found",
        ),
        *(
            Case(
                f"{verb}: a body that is compressed with {encoding}",
                Http(b"{", [("Content-Encoding", encoding)], f"/v2/models/add_sub/{verb}"),
                Code.INVALID_ARGUMENT,
                "Unsupported content-encoding, only 'identity' is supported.",
            )
            for encoding in ("gzip", "deflate", "br")
        ),
    ]
]


def setting(of: str, text: str) -> Http:
    return Http(text.encode(), path=f"/v2/{of}")


LOGGING, TRACE, MODEL_TRACE = "logging", "trace/setting", "models/add_sub/trace/setting"
U32_RANGE: Final = "[ 0, 4294967295 ]"

SETTING_CASES: Final = [
    *(
        Case(
            f"settings that are nothing: {of}",
            setting(of, ""),
            Code.INTERNAL,
            f"{PARSE}The document is empty. at 0",
        )
        for of in (LOGGING, TRACE, MODEL_TRACE)
    ),
    Case(
        "settings that are no JSON",
        setting(LOGGING, "{"),
        Code.INTERNAL,
        f"{PARSE}Missing a name for object member. at 1",
    ),
    Case(
        "another log file",
        setting(LOGGING, '{"log_file": "/tmp/log", "log_info": 1}'),
        Code.UNIMPLEMENTED,
        "log file location can not be updated through network protocol",
    ),
    *(
        Case(
            f"a log switch that is no boolean: {name}", setting(LOGGING, f'{{"{name}": 0}}'), Code.INTERNAL, NOT_BOOLEAN
        )
        for name in ("log_info", "log_warning", "log_error")
    ),
    *(
        Case(
            f"the verbose level {level}",
            setting(LOGGING, f'{{"log_verbose_level": {level}}}'),
            Code.INTERNAL,
            NOT_UNSIGNED,
        )
        for level in ("-1", '"1"', "true", "1.0")
    ),
    Case("a log format that is no string", setting(LOGGING, '{"log_format": 1}'), Code.INTERNAL, NOT_STRING),
    Case(
        "an unknown log format",
        setting(LOGGING, '{"log_info": true, "log_format": "xml"}'),
        Code.UNAVAILABLE,
        "invalid argument for --log_format, got: xml",
    ),
    Case(
        "trace settings of an unknown model",
        setting("models/missing/trace/setting", "{"),
        Code.INVALID_ARGUMENT,
        "Request for unknown model : missing",
    ),
    *(
        Case(
            f"another trace file: {value}",
            setting(TRACE, f'{{"trace_file": {value}, "trace_rate": 1}}'),
            Code.UNIMPLEMENTED,
            "trace file location can not be updated through network protocol",
        )
        for value in ('"/tmp/trace"', "null")
    ),
    Case("a trace level that is no list", setting(TRACE, '{"trace_level": "OFF"}'), Code.INTERNAL, NOT_ARRAY),
    Case("a trace level that is a list of numbers", setting(TRACE, '{"trace_level": [1]}'), Code.INTERNAL, NOT_STRING),
    Case(
        "traces that are off and more",
        setting(TRACE, '{"trace_level": ["TIMESTAMPS", "OFF"]}'),
        Code.INVALID_ARGUMENT,
        "Expect only one trace level 'OFF' is specified",
    ),
    *(
        Case(
            f"traces turned on: {level} of {of}",
            setting(of, f'{{"trace_level": ["{level}"]}}'),
            Code.UNIMPLEMENTED,
            f"trace_level '{level}' is not supported by this version, expected 'OFF'",
        )
        for level in ("TIMESTAMPS", "TENSORS")
        for of in (TRACE, MODEL_TRACE)
    ),
    *(
        Case(f"{name} that is a number", setting(TRACE, f'{{"{name}": 1}}'), Code.INTERNAL, NOT_STRING)
        for name in ("trace_rate", "trace_count", "log_frequency")
    ),
    *(
        Case(
            f"{name} that is no number",
            setting(TRACE, f'{{"trace_level": ["TENSORS"], "{name}": "often"}}'),
            Code.INVALID_ARGUMENT,
            f"Unable to parse '{name}', got: often",
        )
        for name in ("trace_rate", "trace_count", "log_frequency")
    ),
    *(
        Case(
            f"{name} beyond 32 bits",
            setting(TRACE, f'{{"{name}": "3000000000"}}'),
            Code.INVALID_ARGUMENT,
            f"Unable to parse '{name}', value is out of range {allowed}, got: 3000000000",
        )
        for name, allowed in (
            ("trace_rate", U32_RANGE),
            ("trace_count", "[ -1, 2147483647 ]"),
            ("log_frequency", U32_RANGE),
        )
    ),
    Case(
        "a negative trace count",
        setting(MODEL_TRACE, '{"trace_count": "-2"}'),
        Code.INVALID_ARGUMENT,
        "Unable to parse 'trace_count'. Expecting value >= -1, got:-2",
    ),
]

CONTROL_DISABLED: Final = "explicit model load / unload is not allowed if polling is enabled"

DISABLED_CASES: Final = [
    Case("a load where models are not controlled", repository(LOAD), Code.UNAVAILABLE, CONTROL_DISABLED),
    Case("an unload where models are not controlled", repository(UNLOAD), Code.UNAVAILABLE, CONTROL_DISABLED),
    Case(
        "a load of an unknown model where models are not controlled",
        repository("/models/missing/load"),
        Code.UNAVAILABLE,
        CONTROL_DISABLED,
    ),
    Case(
        "a load with another configuration where models are not controlled",
        repository(LOAD, b'{"parameters": {"config": "{}"}}'),
        Code.UNAVAILABLE,
        CONTROL_DISABLED,
    ),
]

EXPLICIT_CASES: Final = [
    *REPOSITORY_CASES,
    Case(
        "a load of an unknown model",
        repository("/models/missing/load"),
        Code.INTERNAL,
        "failed to load 'missing', failed to poll from model repository",
    ),
    Case(
        "a load of a name that no directory can have",
        repository(f"/models/{'m' * 256}/load"),
        Code.INTERNAL,
        f"failed to load '{'m' * 256}', failed to poll from model repository",
    ),
    Case(
        "a load of the directory above",
        repository("/models/../load"),
        Code.INVALID_ARGUMENT,
        "invalid model name '..', model name must not contain path traversal characters",
    ),
    Case(
        "a load of a path",
        repository("/models/..%2Fmodels%2Fadd_sub/load"),
        Code.INVALID_ARGUMENT,
        "invalid model name '../models/add_sub', model name must not contain path traversal characters",
    ),
    Case(
        "a load of a blank name",
        repository("/models/%20/load"),
        Code.INVALID_ARGUMENT,
        "Model name cannot be empty. Please enter a valid name to deploy.",
    ),
    Case(
        "a load with another configuration",
        repository(LOAD, b'{"parameters": {"config": "{}", "file:1/model.onnx": "AAAA"}}'),
        Code.UNIMPLEMENTED,
        "load parameter 'config' is not supported by this version",
    ),
    Case(
        "a load with other files",
        repository(LOAD, b'{"parameters": {"file:1/model.onnx": "AAAA"}}'),
        Code.UNIMPLEMENTED,
        "load parameter 'file:1/model.onnx' is not supported by this version",
    ),
]
"""For a server whose models are loaded on demand."""

CASES: Final = [
    *MODEL_CASES,
    *INPUT_CASES,
    *TENSOR_CASES,
    *STRING_CASES,
    *MEMBER_CASES,
    *element_cases(),
    *SYNTAX_CASES,
    *FRAMING_CASES,
    *UNSUPPORTED_CASES,
    *UNDECODED_CASES,
    *RAW_CASES,
    *SHARED_MEMORY_CASES,
    *REPOSITORY_CASES,
    *DISABLED_CASES,
    *SETTING_CASES,
    *GENERATE_CASES,
]
"""The table."""
