"""
The management calls of an Engine and a Client, under the names and argument names of tritonclient.

Each exists twice, as `load_model` and as `async_load_model`, and answers what `tritonclient.http` answers: plain
dictionaries and lists. A failure raises the exception of its kind. Headers and query parameters are not taken: no call
here has a meaning for them. Questions take a deadline; changes, such as loading, are never abandoned half-way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, SupportsIndex

from . import verbs
from .verbs import Answer, Verb

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta


__all__ = ["Management"]


class Management(ABC):
    """What can be asked of a server, and what can be changed about its models"""

    @abstractmethod
    def _call(self, verb: Verb, deadline: float | timedelta | None = None) -> Answer: ...

    @abstractmethod
    async def _async_call(self, verb: Verb, deadline: float | timedelta | None = None) -> Answer: ...

    def is_server_live(self, *, deadline: float | timedelta | None = None) -> bool:
        """Whether the server is alive"""
        return verbs.succeeded(self._call(Verb("ServerLive"), deadline))

    async def async_is_server_live(self, *, deadline: float | timedelta | None = None) -> bool:
        """Whether the server is alive"""
        return verbs.succeeded(await self._async_call(Verb("ServerLive"), deadline))

    def is_server_ready(self, *, deadline: float | timedelta | None = None) -> bool:
        """Whether the server takes requests"""
        return verbs.succeeded(self._call(Verb("ServerReady"), deadline))

    async def async_is_server_ready(self, *, deadline: float | timedelta | None = None) -> bool:
        """Whether the server takes requests"""
        return verbs.succeeded(await self._async_call(Verb("ServerReady"), deadline))

    def is_model_ready(
        self, model_name: str, model_version: str | SupportsIndex = "", *, deadline: float | timedelta | None = None
    ) -> bool:
        """Whether a model, or one version of it, takes requests; False too where there is no such model"""
        return verbs.succeeded(self._call(verbs.model("ModelReady", model_name, model_version), deadline))

    async def async_is_model_ready(
        self, model_name: str, model_version: str | SupportsIndex = "", *, deadline: float | timedelta | None = None
    ) -> bool:
        """Whether a model, or one version of it, takes requests; False too where there is no such model"""
        return verbs.succeeded(await self._async_call(verbs.model("ModelReady", model_name, model_version), deadline))

    def get_server_metadata(self, *, deadline: float | timedelta | None = None) -> dict[str, Any]:
        """Name, version and extensions of the server"""
        return self._asked(Verb("ServerMetadata"), deadline)

    async def async_get_server_metadata(self, *, deadline: float | timedelta | None = None) -> dict[str, Any]:
        """Name, version and extensions of the server"""
        return await self._async_asked(Verb("ServerMetadata"), deadline)

    def get_model_metadata(
        self, model_name: str, model_version: str | SupportsIndex = "", *, deadline: float | timedelta | None = None
    ) -> dict[str, Any]:
        """Versions, inputs and outputs of a model"""
        return self._asked(verbs.model("ModelMetadata", model_name, model_version), deadline)

    async def async_get_model_metadata(
        self, model_name: str, model_version: str | SupportsIndex = "", *, deadline: float | timedelta | None = None
    ) -> dict[str, Any]:
        """Versions, inputs and outputs of a model"""
        return await self._async_asked(verbs.model("ModelMetadata", model_name, model_version), deadline)

    def get_model_config(
        self, model_name: str, model_version: str | SupportsIndex = "", *, deadline: float | timedelta | None = None
    ) -> dict[str, Any]:
        """The configuration of a model, completed"""
        return self._asked(verbs.model("ModelConfig", model_name, model_version), deadline)

    async def async_get_model_config(
        self, model_name: str, model_version: str | SupportsIndex = "", *, deadline: float | timedelta | None = None
    ) -> dict[str, Any]:
        """The configuration of a model, completed"""
        return await self._async_asked(verbs.model("ModelConfig", model_name, model_version), deadline)

    def get_model_repository_index(self, *, deadline: float | timedelta | None = None) -> list[dict[str, Any]]:
        """Every model and version of the repository with its state"""
        return self._listed(Verb("RepositoryIndex"), deadline)

    async def async_get_model_repository_index(
        self, *, deadline: float | timedelta | None = None
    ) -> list[dict[str, Any]]:
        """Every model and version of the repository with its state"""
        return await self._async_listed(Verb("RepositoryIndex"), deadline)

    def get_inference_statistics(
        self,
        model_name: str = "",
        model_version: str | SupportsIndex = "",
        *,
        deadline: float | timedelta | None = None,
    ) -> dict[str, Any]:
        """Counts and durations of one model, or of all"""
        return self._asked(verbs.statistics(model_name, model_version), deadline)

    async def async_get_inference_statistics(
        self,
        model_name: str = "",
        model_version: str | SupportsIndex = "",
        *,
        deadline: float | timedelta | None = None,
    ) -> dict[str, Any]:
        """Counts and durations of one model, or of all"""
        return await self._async_asked(verbs.statistics(model_name, model_version), deadline)

    def get_metrics(self, *, deadline: float | timedelta | None = None) -> str:
        """What was counted of all models, as Prometheus reads it"""
        return verbs.text(Verb("Metrics"), self._call(Verb("Metrics"), deadline))

    async def async_get_metrics(self, *, deadline: float | timedelta | None = None) -> str:
        """What was counted of all models, as Prometheus reads it"""
        return verbs.text(Verb("Metrics"), await self._async_call(Verb("Metrics"), deadline))

    def load_model(
        self, model_name: str, *, config: str | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """
        Loads a model, or loads it again, and returns when it is ready.

        config: a model configuration as JSON that replaces the one of the repository.
        files: a model directory that replaces the one of the repository, as "file:1/model.onnx" → content; needs
            a config.
        """
        self._changed(verbs.load(model_name, config, files))

    async def async_load_model(
        self, model_name: str, *, config: str | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """The same as `load_model`, for an event loop"""
        await self._async_changed(verbs.load(model_name, config, files))

    def unload_model(self, model_name: str, *, unload_dependents: bool = False) -> None:
        """Unloads a model; requests that it has accepted are answered"""
        self._changed(verbs.unload(model_name, dependents=unload_dependents))

    async def async_unload_model(self, model_name: str, *, unload_dependents: bool = False) -> None:
        """The same as `unload_model`, for an event loop"""
        await self._async_changed(verbs.unload(model_name, dependents=unload_dependents))

    def get_model_versions(self, model_name: str, *, deadline: float | timedelta | None = None) -> dict[str, Any]:
        """How requests find the versions of a model: labels, weights and sticky, as `change_model_versions` has them"""
        return verbs.versions(self.get_model_config(model_name, deadline=deadline))

    async def async_get_model_versions(
        self, model_name: str, *, deadline: float | timedelta | None = None
    ) -> dict[str, Any]:
        """The same as `get_model_versions`, for an event loop"""
        return verbs.versions(await self.async_get_model_config(model_name, deadline=deadline))

    def change_model_versions(
        self,
        model_name: str,
        *,
        labels: Mapping[str, int] | None = None,
        weights: Mapping[str | int, float] | None = None,
        sticky: str | None = None,
        keep: bool = False,
    ) -> None:
        """
        Changes how requests find the versions of a model that serves. The versions stay as they are; what is not given
        stays too, and what is empty goes.

        labels: names for versions, which requests may name in the place of a number.
        weights: how the requests are shared out that name no version, by labels or numbers; empty: the latest gets all.
        sticky: the parameter or header whose value says which version gets a request, the same for equal values.
        keep: the model's directory keeps it, for the next start.
        """
        self._reroute(model_name, verbs.versions_change(labels, weights, sticky, keep=keep))

    async def async_change_model_versions(
        self,
        model_name: str,
        *,
        labels: Mapping[str, int] | None = None,
        weights: Mapping[str | int, float] | None = None,
        sticky: str | None = None,
        keep: bool = False,
    ) -> None:
        """The same as `change_model_versions`, for an event loop"""
        await self._async_reroute(model_name, verbs.versions_change(labels, weights, sticky, keep=keep))

    def promote_model_version(self, model_name: str, model_version: str | int, *, keep: bool = False) -> None:
        """One version, a label or a number, gets the label "stable" and all requests that name none"""
        self._reroute(model_name, {"promote": model_version, "keep": keep})

    async def async_promote_model_version(
        self, model_name: str, model_version: str | int, *, keep: bool = False
    ) -> None:
        """The same as `promote_model_version`, for an event loop"""
        await self._async_reroute(model_name, {"promote": model_version, "keep": keep})

    def roll_back_model_versions(self, model_name: str, *, keep: bool = False) -> None:
        """Goes back to the labels and weights before the last change of them"""
        self._reroute(model_name, {"back": True, "keep": keep})

    async def async_roll_back_model_versions(self, model_name: str, *, keep: bool = False) -> None:
        """The same as `roll_back_model_versions`, for an event loop"""
        await self._async_reroute(model_name, {"back": True, "keep": keep})

    def forget_model_versions(self, model_name: str) -> None:
        """Goes back to what the model's configuration says of its versions; what was kept is deleted"""
        self._reroute(model_name, {"forget": True})

    async def async_forget_model_versions(self, model_name: str) -> None:
        """The same as `forget_model_versions`, for an event loop"""
        await self._async_reroute(model_name, {"forget": True})

    def get_system_shared_memory_status(
        self, region_name: str = "", *, deadline: float | timedelta | None = None
    ) -> list[dict[str, Any]]:
        """The registered regions of shared memory, or one of them"""
        return self._listed(verbs.region("SystemSharedMemoryStatus", region_name), deadline)

    async def async_get_system_shared_memory_status(
        self, region_name: str = "", *, deadline: float | timedelta | None = None
    ) -> list[dict[str, Any]]:
        """The registered regions of shared memory, or one of them"""
        return await self._async_listed(verbs.region("SystemSharedMemoryStatus", region_name), deadline)

    def register_system_shared_memory(self, name: str, key: str, byte_size: int, offset: int = 0) -> None:
        """Registers a region of the shared memory object `key` under a name"""
        self._changed(verbs.register_region(name, key, byte_size, offset))

    async def async_register_system_shared_memory(self, name: str, key: str, byte_size: int, offset: int = 0) -> None:
        """Registers a region of the shared memory object `key` under a name"""
        await self._async_changed(verbs.register_region(name, key, byte_size, offset))

    def unregister_system_shared_memory(self, name: str = "") -> None:
        """Forgets one region of shared memory, or all"""
        self._changed(verbs.region("SystemSharedMemoryUnregister", name))

    async def async_unregister_system_shared_memory(self, name: str = "") -> None:
        """Forgets one region of shared memory, or all"""
        await self._async_changed(verbs.region("SystemSharedMemoryUnregister", name))

    def get_log_settings(self, *, deadline: float | timedelta | None = None) -> dict[str, Any]:
        """What the server's process logs, and how"""
        return self._asked(verbs.log_settings(), deadline)

    async def async_get_log_settings(self, *, deadline: float | timedelta | None = None) -> dict[str, Any]:
        """What the server's process logs, and how"""
        return await self._async_asked(verbs.log_settings(), deadline)

    def update_log_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Changes what the server's process logs, from the next line on, and answers all settings"""
        return self._asked(verbs.log_settings(settings), None)

    async def async_update_log_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Changes what the server's process logs, from the next line on, and answers all settings"""
        return await self._async_asked(verbs.log_settings(settings), None)

    def get_trace_settings(self, model_name: str = "", *, deadline: float | timedelta | None = None) -> dict[str, Any]:
        """The settings of traces, of one model or of all"""
        return self._asked(verbs.trace_settings(model_name), deadline)

    async def async_get_trace_settings(
        self, model_name: str = "", *, deadline: float | timedelta | None = None
    ) -> dict[str, Any]:
        """The settings of traces, of one model or of all"""
        return await self._async_asked(verbs.trace_settings(model_name), deadline)

    def update_trace_settings(
        self, model_name: str = "", settings: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Changes settings of traces, of one model or of all, and answers them; None takes one back"""
        return self._asked(verbs.trace_settings(model_name, settings), None)

    async def async_update_trace_settings(
        self, model_name: str = "", settings: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Changes settings of traces, of one model or of all, and answers them; None takes one back"""
        return await self._async_asked(verbs.trace_settings(model_name, settings), None)

    def _asked(self, verb: Verb, deadline: float | timedelta | None) -> dict[str, Any]:
        return verbs.document(verb, self._call(verb, deadline))

    async def _async_asked(self, verb: Verb, deadline: float | timedelta | None) -> dict[str, Any]:
        return verbs.document(verb, await self._async_call(verb, deadline))

    def _listed(self, verb: Verb, deadline: float | timedelta | None) -> list[dict[str, Any]]:
        return verbs.rows(verb, self._call(verb, deadline))

    async def _async_listed(self, verb: Verb, deadline: float | timedelta | None) -> list[dict[str, Any]]:
        return verbs.rows(verb, await self._async_call(verb, deadline))

    def _reroute(self, name: str, change: Mapping[str, Any]) -> None:
        self._changed(verbs.change_versions(name, change))

    async def _async_reroute(self, name: str, change: Mapping[str, Any]) -> None:
        await self._async_changed(verbs.change_versions(name, change))

    def _changed(self, verb: Verb) -> None:
        verbs.accepted(verb, self._call(verb))

    async def _async_changed(self, verb: Verb) -> None:
        verbs.accepted(verb, await self._async_call(verb))
