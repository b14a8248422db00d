"""Where JSON ends and binary data begins."""

from __future__ import annotations

import json
from typing import Final

from tests.contract.cases.case import PARSE, ROW, Case, Code, Http, document
from tests.contract.requests import HEADER_LENGTH, path


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
