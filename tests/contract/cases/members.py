"""Members of a request in JSON: missing, or of another type than expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.contract.cases.case import (
    MISSING,
    NO_SOURCE,
    NOT_ARRAY,
    NOT_BOOLEAN,
    NOT_STRING,
    NOT_UNSIGNED,
    Case,
    Code,
    Http,
    document,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

I64_MAX: Final = 9223372036854775807
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
