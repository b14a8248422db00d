"""What tests of the gRPC door share: an engine that opens it, channels to it, and how a call ends"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from runners import Engine, EngineOptions, GrpcOptions, LogOptions
from tests.serving import GRPC_LINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.certificates import Authority, Identity
    from tests.serving import Server

__all__ = [
    "OK",
    "SERVICE",
    "add_sub_request",
    "channel",
    "ended",
    "first_of",
    "port_of",
    "secure_channel",
    "serving_grpc",
    "tensor_request",
]

SERVICE: Final = "/inference.GRPCInferenceService"
OK: Final = (grpc.StatusCode.OK, "")

Ending: TypeAlias = tuple[grpc.StatusCode, str]
Metadata: TypeAlias = "Sequence[tuple[str, str]]"


@contextmanager
def serving_grpc(repository: Path, options: GrpcOptions) -> Iterator[int]:
    """An engine that speaks gRPC as these options say, and its port"""
    with Engine(repository, options=EngineOptions(grpc=options, log=LogOptions(info=False))) as engine:
        yield engine.serve_grpc(port=0)


def port_of(server: Server) -> int:
    return int(server.log.wait_for(GRPC_LINE, 10).group(1))


def channel(port: int, **arguments: object) -> grpc.Channel:
    """A plain one, with a connection of its own"""
    options = {"grpc.use_local_subchannel_pool": 1, **{f"grpc.{name}": value for name, value in arguments.items()}}
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=list(options.items()))


def secure_channel(port: int, trusted: Authority, shown: Identity | None = None) -> grpc.Channel:
    own = (shown.key.read_bytes(), shown.certificate.read_bytes()) if shown else (None, None)
    credentials = grpc.ssl_channel_credentials(trusted.certificate.read_bytes(), *own)
    return grpc.secure_channel(f"localhost:{port}", credentials, options=[("grpc.use_local_subchannel_pool", 1)])


def ended(ask: Callable[[], object]) -> Ending:
    """The status and the text with which a call ends"""
    try:
        ask()
    except grpc.RpcError as error:
        return error.code(), error.details() or ""
    return OK


def first_of(through: grpc.Channel, path: str, metadata: Metadata = (), timeout: float = 20) -> Ending:
    """How a call with one empty message is answered, or ends; whatever the kind of its method"""
    call = through.stream_stream(path)(iter([b""]), metadata=tuple(metadata), timeout=timeout)
    try:
        return ended(lambda: next(call))
    finally:
        call.cancel()


def add_sub_request(number: int = 1, rows: int = 1) -> service_pb2.ModelInferRequest:
    """Of the model add_sub: ones, and as many times a number"""
    request = service_pb2.ModelInferRequest(model_name="add_sub")
    for name, value in (("INPUT0", number), ("INPUT1", 1)):
        request.inputs.add(name=name, datatype="INT32", shape=[rows, 16])
        request.raw_input_contents.append(np.full((rows, 16), value, np.int32).tobytes())
    return request


def tensor_request(model: str, name: str, datatype: str, values: NDArray[Any]) -> service_pb2.ModelInferRequest:
    """Of a model with one input"""
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name=name, datatype=datatype, shape=values.shape)
    request.raw_input_contents.append(values.tobytes())
    return request
