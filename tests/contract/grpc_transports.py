"""
The ways that a request of the table goes over gRPC, and what comes back: the name of its code, and the text of an error

Messages carry every request. `tritonclient.grpc`, with threads or with an event loop, carries those that it can make of
arrays.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Final

import grpc
import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput, aio, service_pb2
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from tests.contract.cases import Http
from tests.contract.requests import Infer, Output, Tensor
from tests.contract.transports import array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

__all__ = ["CLIENTS", "asked", "call", "refusal", "tensors"]

CLIENTS: Final = ("tritonclient", "aio")
SERVICE: Final = "/inference.GRPCInferenceService"
REPOSITORY: Final = re.compile(
    r"/v2/repository(?:/(?P<repository>[^/]+))?/(?:index|models/(?P<model>[^/]+)/(?P<verb>\w+))"
)
REGION: Final = re.compile(r"/v2/(?P<kind>system|cuda)sharedmemory(?:/region/(?P<region>\w+))?/(?P<verb>\w+)")
TRACE: Final = re.compile(r"/v2/(?:models/(?P<model>[^/]+)/)?trace/setting")

Asked = tuple[str, "Message"]
"""A method, and its message"""


def asked(request: Infer | Http) -> Asked | None:
    """What the request is over gRPC; None where it has no meaning there"""
    if isinstance(request, Infer):
        message = inference(request)
        return None if message is None else ("ModelInfer", message)
    return managed(request)


def inference(request: Infer) -> service_pb2.ModelInferRequest | None:
    message = service_pb2.ModelInferRequest(model_name=request.model, model_version=request.version, id=request.id)
    for tensor in request.inputs:
        message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if (raw := content(tensor)) is None:
            return None
        message.raw_input_contents.append(raw)
    for output in request.outputs:
        entry = message.outputs.add(name=output.name)
        if output.classes is not None:
            entry.parameters["classification"].int64_param = output.classes
    for name, value in request.parameters.items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
        setattr(message.parameters[name], kind, value)
    return message


def content(tensor: Tensor) -> bytes | None:
    if tensor.raw is not None or tensor.values is None:
        return tensor.raw
    dtype = triton_to_np_dtype(tensor.datatype)
    return None if dtype is None or dtype == np.object_ else np.array(tensor.values, dtype).tobytes()


def managed(request: Http) -> Asked | None:
    """A call beside inference, where its body says something that a message can say"""
    try:
        body = json.loads(request.body or b"{}")
    except ValueError:
        return None
    if match := REPOSITORY.fullmatch(request.path):
        return ordered(match["repository"] or "", match["model"], match["verb"], body)
    if match := TRACE.fullmatch(request.path):
        return traced(match["model"] or "", body)
    return None


def ordered(repository: str, model: str | None, verb: str | None, body: dict[str, Any]) -> Asked | None:
    if model is None:
        if "ready" in body and not isinstance(body["ready"], bool):
            return None
        return "RepositoryIndex", service_pb2.RepositoryIndexRequest(repository_name=repository, **body)
    name = model.replace("%2F", "/").replace("%20", " ")
    kind = service_pb2.RepositoryModelLoadRequest if verb == "load" else service_pb2.RepositoryModelUnloadRequest
    message = kind(repository_name=repository, model_name=name)
    parameters = body.get("parameters", {})
    if not isinstance(parameters, dict):
        return None
    for key, value in parameters.items():
        if key.startswith("file:"):
            message.parameters[key].bytes_param = value.encode()
        elif field := {int: "int64_param", bool: "bool_param", str: "string_param"}.get(type(value)):
            setattr(message.parameters[key], field, value)
        else:
            return None
    return ("RepositoryModelLoad" if verb == "load" else "RepositoryModelUnload"), message


def traced(model: str, body: dict[str, Any]) -> Asked | None:
    message = service_pb2.TraceSettingRequest(model_name=model)
    for name, value in body.items():
        listed = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str) for one in listed):
            return None
        message.settings[name].value.extend(listed)
    return "TraceSetting", message


def call(through: grpc.Channel, what: Asked) -> tuple[str, str]:
    """The code and the text that a message is answered with"""
    method, message = what
    try:
        through.unary_unary(f"{SERVICE}/{method}")(message.SerializeToString(), timeout=30)
    except grpc.RpcError as error:
        return error.code().name, error.details() or ""
    return "OK", ""


def tensors(inputs: Sequence[Tensor]) -> list[InferInput] | None:
    """What `tritonclient` makes of the inputs; None where it refuses one itself"""
    made = []
    for tensor in inputs:
        if (values := array(tensor)) is None:
            return None
        entry = InferInput(tensor.name, list(tensor.shape), tensor.datatype)
        entry.set_data_from_numpy(values)
        made.append(entry)
    return made


def requested(outputs: Sequence[Output]) -> list[InferRequestedOutput] | None:
    return [InferRequestedOutput(output.name, class_count=output.classes or 0) for output in outputs] or None


def refusal(port: int, way: str, request: Infer) -> tuple[str, str]:
    """The code and the text of a refusal that a client raises"""
    ask = _ask if way == "tritonclient" else _ask_async
    try:
        ask(f"127.0.0.1:{port}", request)
    except InferenceServerException as error:
        return str(error.status()).removeprefix("StatusCode."), error.message()
    return "OK", ""


def _options(request: Infer) -> dict[str, Any]:
    return {
        "outputs": requested(request.outputs),
        "model_version": request.version,
        "request_id": request.id,
        "parameters": dict(request.parameters) or None,
    }


def _ask(address: str, request: Infer) -> None:
    with InferenceServerClient(address) as client:
        client.infer(request.model, tensors(request.inputs), **_options(request))


def _ask_async(address: str, request: Infer) -> None:
    async def run() -> None:
        async with aio.InferenceServerClient(address) as client:
            await client.infer(request.model, tensors(request.inputs), **_options(request))

    asyncio.run(run())
