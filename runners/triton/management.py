"""
The management calls of a TritonRunner: coroutines with the arguments of tritonclient's asyncio clients.

They answer what the client of the runner's type answers: "http" dictionaries and lists, "grpc" protobuf messages, or
with as_json the JSON of those.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ..errors import DeadlineExceeded, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..calls import Calls

__all__ = ["TritonManagement"]


class _Options(TypedDict, total=False):
    """What the clients of tritonclient take with every call"""

    headers: Mapping[str, str] | None
    query_params: Mapping[str, str] | None
    as_json: bool
    client_timeout: float | None


class TritonManagement(ABC):
    """What can be asked of the engine behind a TritonRunner, and what can be changed about its models"""

    name: str
    tritonserver_type: str

    @abstractmethod
    async def _ready(self) -> Calls:
        """The engine, opened"""

    async def is_server_live(self, **options: Unpack[_Options]) -> bool:
        """Whether the server is alive"""
        return bool(await self._manage(options, "is_server_live"))

    async def is_server_ready(self, **options: Unpack[_Options]) -> bool:
        """Whether the server takes requests"""
        return bool(await self._manage(options, "is_server_ready"))

    async def is_model_ready(self, model_name: str, model_version: str = "", **options: Unpack[_Options]) -> bool:
        """Whether a model, or one version of it, takes requests"""
        return bool(await self._manage(options, "is_model_ready", model_name, model_version))

    async def get_server_metadata(self, **options: Unpack[_Options]) -> Any:  # noqa: ANN401 - message or JSON
        """Name, version and extensions of the server"""
        return await self._told(options, "get_server_metadata")

    async def get_model_metadata(self, model_name: str, model_version: str = "", **options: Unpack[_Options]) -> Any:  # noqa: ANN401 - message or JSON
        """Versions, inputs and outputs of a model"""
        return await self._told(options, "get_model_metadata", model_name, model_version)

    async def get_model_config(self, model_name: str, model_version: str = "", **options: Unpack[_Options]) -> Any:  # noqa: ANN401 - message or JSON
        """The configuration of a model, completed"""
        return await self._told(options, "get_model_config", model_name, model_version)

    async def get_model_repository_index(self, **options: Unpack[_Options]) -> Any:  # noqa: ANN401 - message or JSON
        """Every model and version of the repository with its state"""
        return await self._told(options, "get_model_repository_index")

    async def get_inference_statistics(
        self, model_name: str = "", model_version: str = "", **options: Unpack[_Options]
    ) -> Any:  # noqa: ANN401 - message or JSON
        """Counts and durations of one model, or of all"""
        return await self._told(options, "get_inference_statistics", model_name, model_version)

    async def load_model(
        self,
        model_name: str,
        *,
        config: str | None = None,
        files: Mapping[str, bytes] | None = None,
        **options: Unpack[_Options],
    ) -> None:
        """Loads a model, or loads it again, and returns when it is ready"""
        await self._manage(options, "load_model", model_name, config=config, files=files)

    async def unload_model(
        self, model_name: str, *, unload_dependents: bool = False, **options: Unpack[_Options]
    ) -> None:
        """Unloads a model; requests that it has accepted are answered"""
        await self._manage(options, "unload_model", model_name, unload_dependents=unload_dependents)

    async def get_system_shared_memory_status(self, region_name: str = "", **options: Unpack[_Options]) -> Any:  # noqa: ANN401 - message or JSON
        """The registered regions of shared memory, or one of them"""
        return await self._told(options, "get_system_shared_memory_status", region_name)

    async def register_system_shared_memory(
        self, name: str, key: str, byte_size: int, offset: int = 0, **options: Unpack[_Options]
    ) -> None:
        """Registers a region of the shared memory object `key` under a name"""
        await self._manage(options, "register_system_shared_memory", name, key, byte_size, offset)

    async def unregister_system_shared_memory(self, name: str = "", **options: Unpack[_Options]) -> None:
        """Forgets one region of shared memory, or all"""
        await self._manage(options, "unregister_system_shared_memory", name)

    async def get_log_settings(self, **options: Unpack[_Options]) -> Any:  # noqa: ANN401 - message or JSON
        """What the server's process logs, and how"""
        return await self._told(options, "get_log_settings")

    async def update_log_settings(self, settings: Mapping[str, Any], **options: Unpack[_Options]) -> Any:  # noqa: ANN401 - message or JSON
        """Changes what the server's process logs, and answers all settings"""
        return await self._told(options, "update_log_settings", settings)

    async def get_trace_settings(self, model_name: str | None = None, **options: Unpack[_Options]) -> Any:  # noqa: ANN401 - message or JSON
        """The settings of traces, of one model or of all"""
        return await self._told(options, "get_trace_settings", model_name or "")

    async def update_trace_settings(
        self,
        model_name: str | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        **options: Unpack[_Options],
    ) -> Any:  # noqa: ANN401 - message or JSON
        """Changes settings of traces, and answers all; there are no traces to turn on yet"""
        return await self._told(options, "update_trace_settings", model_name or "", settings)

    async def _manage(self, options: _Options, call: str, *arguments: object, **named: object) -> Any:  # noqa: ANN401
        refuse_headers(self.name, options.get("headers"), options.get("query_params"))
        seconds = options.get("client_timeout")
        try:
            async with asyncio.timeout(seconds):
                return await getattr(await self._ready(), f"async_{call}")(*arguments, **named)
        except TimeoutError as error:
            if isinstance(error, DeadlineExceeded):
                raise
            raise DeadlineExceeded(f"{call} took longer than its client_timeout of {seconds} s") from None

    async def _told(self, options: _Options, call: str, *arguments: object) -> Any:  # noqa: ANN401 - message or JSON
        answer = await self._manage(options, call, *arguments)
        if self.tritonserver_type == "http":
            return answer
        messages = _messages()
        message = messages.message(call, answer)
        return messages.plain(message) if options.get("as_json") else message


def refuse_headers(runner: str, *given: object) -> None:
    """Raises Unsupported where a call brings headers, or parameters of a query: nobody would read them"""
    if any(given):
        raise Unsupported(f"TritonRunner {runner!r}: headers and query_params are not supported")


def _messages() -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(".messages", __package__)
    except ImportError as error:
        raise Unsupported(
            f"answers of the tritonserver_type 'grpc' need tritonclient[grpc] ({error}): install it, or say "
            "tritonserver_type='http'"
        ) from error
