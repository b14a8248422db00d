"""One inference request as bytes, as tritonclient sends it: JSON and tensors over HTTP, a message over gRPC."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tritonclient.grpc import service_pb2

from benchmarks.models import MODELS, inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Payload",
    "binary_request",
    "floats_request",
    "grpc_request",
    "grpc_stream_request",
    "numbers_request",
    "stream_request",
    "text_request",
]


@dataclass(frozen=True)
class Payload:
    path: str
    headers: dict[str, str]
    body: bytes


def binary_request(name: str, model: str) -> Payload:
    """A request of one row to the model served as `name`."""
    arrays = inputs(model, rows=1)
    return _binary(
        name,
        [
            (spec.name, spec.datatype, arrays[spec.name].shape, arrays[spec.name].tobytes())
            for spec in MODELS[model].inputs
        ],
    )


def grpc_request(name: str, model: str) -> Payload:
    """The same to the gRPC door."""
    arrays = inputs(model, rows=1)
    message = service_pb2.ModelInferRequest(model_name=name)
    for spec in MODELS[model].inputs:
        message.inputs.add(name=spec.name, datatype=spec.datatype, shape=arrays[spec.name].shape)
        message.raw_input_contents.append(arrays[spec.name].tobytes())
    return _over_grpc("ModelInfer", message)


def grpc_stream_request(name: str, tensor: str, value: int) -> Payload:
    """One number, to be answered by a stream of the gRPC door."""
    message = service_pb2.ModelInferRequest(model_name=name)
    message.inputs.add(name=tensor, datatype="INT32", shape=[1])
    message.raw_input_contents.append(value.to_bytes(4, "little"))
    return _over_grpc("ModelStreamInfer", message)


def _over_grpc(method: str, message: service_pb2.ModelInferRequest) -> Payload:
    body = message.SerializeToString()
    head = b"\0" + len(body).to_bytes(4, "big")
    return Payload(f"/inference.GRPCInferenceService/{method}", {}, head + body)


def floats_request(name: str, tensor: str, values: NDArray[np.float32]) -> Payload:
    """One tensor of 32-bit floats"""
    return _binary(name, [(tensor, "FP32", values.shape, values.tobytes())])


def numbers_request(name: str, tensor: str, count: int) -> Payload:
    """One row of so many FP32."""
    return floats_request(name, tensor, np.ones((1, count), np.float32))


def text_request(name: str, tensor: str, text: str) -> Payload:
    """One row of one text."""
    value = text.encode()
    return _binary(name, [(tensor, "BYTES", (1, 1), len(value).to_bytes(4, "little") + value)])


def stream_request(name: str, tensor: str, value: int) -> Payload:
    """One number, to be answered by a stream."""
    body = json.dumps({tensor: [value]}).encode()
    return Payload(f"/v2/models/{name}/generate_stream", {"Content-Type": "application/json"}, body)


def _binary(name: str, tensors: list[tuple[str, str, tuple[int, ...], bytes]]) -> Payload:
    described = [
        {
            "name": tensor,
            "datatype": datatype,
            "shape": list(shape),
            "parameters": {"binary_data_size": len(value)},
        }
        for tensor, datatype, shape, value in tensors
    ]
    header = json.dumps(
        {"inputs": described, "parameters": {"binary_data_output": True}}, separators=(",", ":")
    ).encode()
    return Payload(
        f"/v2/models/{name}/infer",
        {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(header))},
        header + b"".join(value for *_, value in tensors),
    )
