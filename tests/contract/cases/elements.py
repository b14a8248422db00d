"""Elements of tensors in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.cases.case import (
    NOT_BOOLEAN,
    NOT_NUMBER,
    NOT_SIGNED,
    NOT_STRING,
    NOT_UNSIGNED,
    UNKNOWN_ID,
    Case,
    Code,
    Http,
)
from tests.contract.requests import Infer, Output, Tensor, path

if TYPE_CHECKING:
    from collections.abc import Sequence


def identity(datatype: str, values: str, shape: str = "[1,2]") -> Http:
    """A request in JSON, with the text of its data as given, for the model that answers its input."""
    text = f'{{"inputs":[{{"name":"INPUT0","datatype":"{datatype}","shape":{shape},"data":{values}}}]}}'
    return Http(text.encode(), path=path(f"identity_{datatype.lower()}"))


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
            f"FP32 that becomes {datatype} to JSON",
            Infer(
                f"fp32_to_{datatype.lower()}",
                [Tensor("INPUT0", "FP32", (1, 2), values=[1.0, 2.0])],
                [Output("OUTPUT0")],
            ),
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
