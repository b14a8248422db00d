"""The ways that a request of the table goes over HTTP, and what comes back: its status, and the text of an error.

Bytes on a TCP connection or a Unix socket carry every request. `tritonclient`, with threads or with an event loop,
carries those that it can make of arrays.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from tritonclient import http
from tritonclient.http import InferInput, InferRequestedOutput, aio
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from tests.contract import requests
from tests.contract.requests import Infer, Output, Tensor
from tests.raw_http import Connection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tests.raw_http import Response
    from tests.serving import Server

__all__ = ["CLIENTS", "RAW", "array", "raw_infer", "refusal", "requested", "tensors"]

RAW: Final = ("tcp", "unix")
CLIENTS: Final = ("tritonclient", "aio")


def raw_infer(server: Server, way: str, request: Infer) -> Response:
    with Connection(server.http if way == "tcp" else server.http_socket) as connection:
        headers, body = requests.body(request)
        return connection.ask("POST", requests.path(request.model, request.version), headers, body)


def refusal(server: Server, way: str, request: Infer) -> tuple[int, str]:
    """The status and the text of a refusal that a client raises."""
    ask = _ask if way == "tritonclient" else _ask_async
    try:
        ask(server, request)
    except InferenceServerException as error:
        return int(error.status()), error.message()
    return 200, ""


def requested(outputs: Sequence[Output]) -> list[InferRequestedOutput] | None:
    return [
        InferRequestedOutput(output.name, binary_data=output.binary, class_count=output.classes or 0)
        for output in outputs
    ] or None


def tensors(inputs: Sequence[Tensor]) -> list[InferInput] | None:
    """What `tritonclient` makes of the inputs; None where it refuses one itself."""
    made = []
    for tensor in inputs:
        values = array(tensor)
        if values is None:
            return None
        entry = InferInput(tensor.name, list(tensor.shape), tensor.datatype)
        entry.set_data_from_numpy(values, binary_data=tensor.raw is not None)
        made.append(entry)
    return made


def array(tensor: Tensor) -> NDArray[Any] | None:
    dtype = triton_to_np_dtype(tensor.datatype)
    if dtype is None or tensor.datatype in {"BYTES", "BF16"} or not tensor.shape:
        return None
    count = int(np.prod(tensor.shape, dtype=object))
    if tensor.raw is None:
        values = np.array(tensor.values, dtype=dtype)
        return values.reshape(tensor.shape) if values.size == count else None
    if len(tensor.raw) != np.dtype(dtype).itemsize * count:
        return None
    return np.frombuffer(tensor.raw, dtype=dtype).reshape(tensor.shape)


def _options(request: Infer) -> dict[str, Any]:
    return {
        "outputs": requested(request.outputs),
        "model_version": request.version,
        "request_id": request.id,
        "parameters": dict(request.parameters) or None,
    }


def _ask(server: Server, request: Infer) -> None:
    with http.InferenceServerClient(f"{server.http[0]}:{server.http[1]}") as client:
        client.infer(request.model, tensors(request.inputs), **_options(request))


def _ask_async(server: Server, request: Infer) -> None:
    async def run() -> None:
        async with aio.InferenceServerClient(f"{server.http[0]}:{server.http[1]}") as client:
            await client.infer(request.model, tensors(request.inputs), **_options(request))

    asyncio.run(run())
