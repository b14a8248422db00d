"""Generation: members that become inputs, and parameters."""

from __future__ import annotations

import json
from typing import Final

from tests.contract.cases.case import NOT_NUMBER, NOT_SIGNED, NOT_STRING, PARSE, UNKNOWN_ID, Case, Code, Http

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
    *(
        (
            f"an output of {datatype}",
            f"fp32_to_{datatype.lower()}",
            '{"INPUT0": [1.0]}',
            Code.INVALID_ARGUMENT,
            f"sending {datatype} data via JSON is not supported. Please use the binary data format for output",
        )
        for datatype in ("FP16", "BF16")
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
