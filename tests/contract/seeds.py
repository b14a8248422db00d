"""Where the fuzz targets of ``native/fuzz`` begin: the requests of the contract, as each target takes them.

``python -m tests.contract.seeds`` writes them again; what a fuzzer has found stays beside them.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tritonclient.grpc import service_pb2

from tests.contract import requests
from tests.contract.cases import CASES, Http
from tests.contract.requests import ADD_SUB_INPUTS, HEADER_LENGTH, Infer, Output, Tensor
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FOLDER: Final = ROOT / "native" / "fuzz" / "seeds"
EVERY: Final = 6
"""Of the cases, so many of which are much alike, one in this number"""
LARGEST: Final = 2048
"""Bytes of a seed: what is larger slows a fuzzer down."""

HELLO: Final = b"\x08\x03"
FRAME: Final = struct.Struct("<IIQ")
ROW: Final = struct.pack("<16i", *range(16))

SERVED: Final = (
    Infer("add_sub", ADD_SUB_INPUTS, id="json", parameters={"priority": 1, "timeout": 1000, "note": 'a\n"b" é'}),
    Infer(
        "add_sub", [Tensor(name, "INT32", (1, 16), raw=ROW) for name in ("INPUT0", "INPUT1")], [Output("OUTPUT0", True)]
    ),
    Infer(
        "add_sub", [Tensor("TEXT", "BYTES", (1, 2), values=["a", ""]), Tensor("MASK", "BOOL", (1, 1), values=[True])]
    ),
)
VALUES: Final = (
    b"[1,-2,3.5e2]",
    b"[[true],[false]]",
    b'["a\\u00e9\\n","\\ud83d\\ude00",""]',
    b'{"a":{"b":[null]}}',
    b"[1e400]",
)


def http_infer() -> Iterator[bytes]:
    for request in (*SERVED, *(case.request for case in CASES[::EVERY])):
        headers, body = requests.body(request) if isinstance(request, Infer) else (request.headers, request.body)
        yield dict(headers).get(HEADER_LENGTH, "").encode() + b"\n" + body


def json() -> Iterator[bytes]:
    yield from VALUES
    for case in CASES[::EVERY]:
        if isinstance(case.request, Http) and HEADER_LENGTH not in dict(case.request.headers):
            yield case.request.body


def frames() -> Iterator[bytes]:
    for number, request in enumerate(SERVED):
        message = service_pb2.ModelInferRequest(model_name=request.model, id=request.id, model_version="1")
        for tensor in request.inputs:
            message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            message.raw_input_contents.append(tensor.raw or ROW)
        for output in request.outputs:
            message.outputs.add(name=output.name)
        message.parameters["priority"].int64_param = number
        message.parameters["note"].string_param = "text"
        message.parameters["ratio"].double_param = 0.5
        body = message.SerializeToString()
        hello = FRAME.pack(len(HELLO), 1, 0) + HELLO
        yield bytes([20 + number]) + hello + FRAME.pack(len(body), 2, number) + body + FRAME.pack(0, 11, 7)


def write(target: str, seeds: Iterable[bytes]) -> None:
    folder = FOLDER / target
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("request-*"):
        old.unlink()
    small = dict.fromkeys(seed for seed in seeds if len(seed) <= LARGEST)
    for number, seed in enumerate(small):
        Path(folder / f"request-{number:03}").write_bytes(seed)


if __name__ == "__main__":
    write("http_infer", http_infer())
    write("json", json())
    write("frames", frames())
