"""Bodies that are nothing but a tensor."""

from __future__ import annotations

from typing import Final

from tests.contract.cases.case import ROW, UNKNOWN_ID, Case, Code, Http, document
from tests.contract.requests import HEADER_LENGTH, path


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
