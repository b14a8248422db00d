"""
TritonRunner: what `bentoml.triton.Runner` is to a service, on an engine of this process or of another one.

Names, arguments and answers are those of BentoML's, so that a service changes no more than the constructor. It starts
no tritonserver: the first use opens the engine, or connects to it, and importing a service opens nothing. All calls but
`run` are coroutines.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Literal

from ..client import Client
from ..engine import Engine
from ..errors import InvalidInput, KushiError, ShuttingDown, Unsupported
from .arguments import read_arguments
from .management import TritonManagement, refuse_headers
from .model import TritonModel, reader_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kushi_native import Result

__all__ = ["TritonRunner"]

# what tritonclient can ask and no engine answers yet
_ABSENT = frozenset(
    {
        "get_cuda_shared_memory_status",
        "register_cuda_shared_memory",
        "stream_infer",
        "unregister_cuda_shared_memory",
    }
)

_CLASSES = {"inputs": "InferInput", "outputs": "InferRequestedOutput"}


class TritonRunner(TritonManagement):
    """
    All models of a repository, for a service that was written for `bentoml.triton.Runner`.

        triton_runner = TritonRunner("triton_runner", "./model_repository")
        result = await triton_runner.digits.async_run(image)
        return result.as_numpy("logits")
    """

    def __init__(
        self,
        name: str,
        model_repository: str | Path | None = None,
        tritonserver_type: Literal["grpc", "http"] = "grpc",
        cli_args: Sequence[str] | None = None,
        *,
        url: str | None = None,
    ) -> None:
        """
        model_repository: opened in this process at the first use.
        tritonserver_type: whose answers the management calls give: "grpc", protobuf messages; "http", dictionaries.
        cli_args: flags of `kushi serve` that concern models, such as --model-control-mode. As with tritonserver, the
            first use fails when a model cannot be loaded, unless --exit-on-error=false is one of them.
        url: that of a Client, instead of a repository.
        """
        self.name = name.lower()
        if (model_repository is None) == (url is None):
            raise InvalidInput(f"{self!r}: expected either a model_repository or a url")
        if tritonserver_type not in {"grpc", "http"}:
            raise InvalidInput(f"tritonserver_type: expected 'grpc' or 'http', got {tritonserver_type!r}")
        if url is not None and cli_args:
            raise InvalidInput("cli_args: expected none beside a url, where the flags are those of the server")
        self.tritonserver_type = tritonserver_type
        self.repository_path = None if model_repository is None else str(model_repository)
        self.cli_args = list(cli_args or ())
        self._options = read_arguments(cli_args or ())
        self._url = url
        self._lock = threading.Lock()
        self._calls: Engine | Client | None = None
        self._destroyed = False

    def init_local(self, quiet: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - BentoML's signature
        """Opens the engine now, instead of at the first use"""
        self._opened()

    def init_client(self) -> None:
        """Opens the engine now, instead of at the first use"""
        self._opened()

    async def runner_handle_is_ready(self, timeout: float | None = None) -> bool:
        """Whether the engine takes requests"""
        try:
            return await self.is_server_ready(client_timeout=timeout)
        except KushiError:
            return False

    def destroy(self) -> None:
        """Closes the engine, or the connection to it"""
        with self._lock:
            calls, self._calls, self._destroyed = self._calls, None, True
        if calls is not None:
            calls.close()

    async def infer(
        self,
        model_name: str,
        inputs: Sequence[Any],
        model_version: str = "",
        outputs: Sequence[Any] | None = None,
        request_id: str = "",
        *,
        sequence_id: int | str = 0,
        sequence_start: bool = False,  # noqa: ARG002 - tritonclient's signature
        sequence_end: bool = False,  # noqa: ARG002 - as above
        priority: int = 0,
        timeout: int | None = None,
        client_timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        query_params: Mapping[str, str] | None = None,
        parameters: Mapping[str, bool | int | float | str] | None = None,
    ) -> Result:
        """
        Asks a model with the InferInput and InferRequestedOutput of tritonclient.

        timeout: microseconds that the request may wait in the queue.
        client_timeout: seconds until the answer is of no use.
        """
        refuse_headers(self.name, headers, query_params)
        if sequence_id:
            raise Unsupported(f"TritonRunner {self.name!r}: sequences are not supported yet")
        calls = await self._ready()
        arrays = (_reader("inputs", given).named_array(given) for given in inputs)
        counts = (_reader("outputs", given).class_count(given) for given in outputs or ())
        return await calls.async_infer(
            model_name,
            _by_name("input", request_id, arrays),
            model_version=model_version,
            outputs=_by_name("output", request_id, counts),
            parameters=parameters if timeout is None else {**(parameters or {}), "timeout": timeout},
            deadline=client_timeout,
            priority=priority,
            request_id=request_id,
        )

    def model(self, name: str) -> TritonModel:
        """The handle of a model by any name, also one that is no Python identifier or the name of a method here"""
        return TritonModel(name, self._opened, self._ready)

    def __getattr__(self, name: str) -> TritonModel:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        if name in _ABSENT:
            raise Unsupported(f"TritonRunner {self.name!r}: {name} is not supported yet")
        return self.model(name)

    def __repr__(self) -> str:
        return f"<TritonRunner {self.name!r}>"

    async def _ready(self) -> Engine | Client:
        return await asyncio.to_thread(self._opened) if self._calls is None else self._calls

    def _opened(self) -> Engine | Client:
        with self._lock:
            if self._destroyed:
                raise ShuttingDown(f"TritonRunner {self.name!r} is destroyed")
            if self._calls is None:
                self._calls = self._open()
            return self._calls

    def _open(self) -> Engine | Client:
        if self._url is not None:
            return Client(self._url)
        return Engine(self.repository_path or "", options=self._options)


def _by_name(kind: str, request_id: str, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise InvalidInput(
                f"[request id: {request_id or '<id_unknown>'}] {kind} {name!r} already exists in request"
            )
        values[name] = value
    return values


def _reader(argument: str, given: object) -> Any:  # noqa: ANN401 - a module
    reader = reader_of(given)
    if reader is None:
        raise InvalidInput(
            f"{argument}: expected a list of what tritonclient calls {_CLASSES[argument]}, got an object of type "
            f"{type(given).__name__} in it; arrays are taken by async_run of a model"
        )
    return reader
