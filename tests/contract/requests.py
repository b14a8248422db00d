"""An inference request as the protocol means it, apart from the transport that carries it.

A tensor is given as JSON values (``values``) or as its bytes (``raw``). ``body`` makes the HTTP request of it; a gRPC
request can be made of the same object.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "ADD_SUB_INPUTS",
    "HEADER_LENGTH",
    "Infer",
    "Output",
    "Tensor",
    "body",
    "path",
    "strings",
]

HEADER_LENGTH: Final = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Tensor:
    name: str
    datatype: str
    shape: Sequence[int]
    values: Sequence[Any] | None = None
    raw: bytes | None = None


@dataclass(frozen=True)
class Output:
    """``classes`` asks for that many of the best classes in place of the tensor; None does not ask."""

    name: str
    binary: bool = False
    classes: int | None = None


@dataclass(frozen=True)
class Infer:
    model: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Output] = ()
    version: str = ""
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


def strings(*values: bytes) -> bytes:
    """BYTES elements in the binary representation."""
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def path(model: str, version: str = "") -> str:
    chosen = f"/versions/{version}" if version else ""
    return f"/v2/models/{model}{chosen}/infer"


def wanted(output: Output) -> dict[str, Any]:
    parameters: dict[str, Any] = {"binary_data": True} if output.binary else {}
    if output.classes is not None:
        parameters["classification"] = output.classes
    return {"name": output.name, **({"parameters": parameters} if parameters else {})}


def body(request: Infer) -> tuple[list[tuple[str, str]], bytes]:
    """Headers and body of the HTTP request."""
    document: dict[str, Any] = {}
    if request.id:
        document["id"] = request.id
    if request.parameters:
        document["parameters"] = dict(request.parameters)
    listed: list[dict[str, Any]] = []
    binary = b""
    for tensor in request.inputs:
        entry: dict[str, Any] = {"name": tensor.name, "shape": list(tensor.shape), "datatype": tensor.datatype}
        if tensor.raw is not None:
            entry["parameters"] = {"binary_data_size": len(tensor.raw)}
            binary += tensor.raw
        if tensor.values is not None:
            entry["data"] = list(tensor.values)
        listed.append(entry)
    document["inputs"] = listed
    if request.outputs:
        document["outputs"] = [wanted(output) for output in request.outputs]
    text = json.dumps(document).encode()
    headers = [(HEADER_LENGTH, str(len(text)))] if any(tensor.raw is not None for tensor in request.inputs) else []
    return headers, text + binary


ADD_SUB_INPUTS: Final = (
    Tensor("INPUT0", "INT32", (1, 16), values=range(16)),
    Tensor("INPUT1", "INT32", (1, 16), values=[1] * 16),
)
"""A valid request for the model ``add_sub``."""
