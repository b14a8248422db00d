"""
Engine: a model repository opened in this process.

It owns the native core and the controller of its models: it opens doors, drains, closes. Requests never pass through
Python. An engine belongs to the process that made it; a forked child gets a clear error.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any

import kushi_native

from . import verbs
from .buckets.repositories import Repositories
from .calls import Calls
from .control.controller import Controller
from .devices import limits_of
from .errors import ConfigInvalid, KushiError, ModelUnavailable, ShuttingDown, Unsupported, factories
from .grpc_description import described_files, services_of
from .repository.overrides import overrides_of
from .settings import ALL_MODELS, EngineOptions
from .verbs import Answer, Verb, check_name

__all__ = ["Engine", "ModelState"]

_LAST_PORT = 65535


@dataclass(frozen=True)
class ModelState:
    """One row of the repository index"""

    name: str
    version: str
    state: str
    reason: str


class Engine(Calls):
    """
    The models of one or more repositories, loaded in this process.

        with Engine("model_repository") as engine:
            result = engine.digits.run(image)
            result = await engine.digits.async_run(image)
            result = engine.infer("digits", image, deadline=0.5)
            print(result["logits"])

    A model is an attribute, or `engine.model("any name", version=1)`. Where one cannot be loaded, making the engine
    raises ModelUnavailable, which names all of them with their reasons; with `EngineOptions(exit_on_error=False)` the
    others are served, and `failures` says the same. Doors let other processes ask the models: `serve_local`,
    `serve_http`.
    """

    def __init__(self, *repositories: str | Path, options: EngineOptions | None = None) -> None:
        """
        repositories: directories of models, also in buckets (s3://, gs://, as://), or bare model files, which are
            served under their stems.
        options: which models are loaded, and how.
        """
        options = options or EngineOptions()
        found = Repositories(repositories, options.buckets.directory, options.buckets.most_bytes)
        explicit = options.models.control == "explicit"
        self._process = os.getpid()
        self._closed = False
        kushi_native.register_errors(factories())
        self._core = kushi_native.Core(options.to_json(found.paths))
        self._repositories = found
        super().__init__(self._core)
        limits = limits_of(options.devices)
        options.rate_limit.warn()
        self._control = Controller(self._core, found, options.models, options.backend_config, limits)
        try:
            self._control.start(options.models.load if explicit else [ALL_MODELS])
            if options.exit_on_error:
                _check_loaded(self.failures)
            if explicit:
                self._control.attend()
            self._core.set_started()
        except BaseException:
            self.close()
            raise

    @property
    def failures(self) -> Mapping[str, KushiError]:
        """The models that could not be loaded"""
        return self._control.failures

    def load_model(
        self, model_name: str, *, config: str | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """
        Loads a model as its directory is now, or loads it again. Where that fails, what served goes on serving.

        config: a configuration in JSON, in place of that of the directory. It stays until the files of the directory
            change, or the model is unloaded.
        files: what takes the place of the whole directory until the next load, as {"file:1/model.onnx": b"…"}; they
            need a `config`.
        """
        check_name(model_name)
        overrides = overrides_of(config, files)
        self._own()
        self._control.load(model_name, overrides)

    async def async_load_model(
        self, model_name: str, *, config: str | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """The same as `load_model`, for an event loop"""
        await asyncio.to_thread(self.load_model, model_name, config=config, files=files)

    def unload_model(self, model_name: str, *, unload_dependents: bool = False) -> None:
        """
        Takes a model away; the requests that it has accepted are answered.

        unload_dependents: the models of an ensemble go with it, but for those that another one needs.
        """
        check_name(model_name)
        self._own()
        self._control.unload(model_name, dependents=unload_dependents)

    async def async_unload_model(self, model_name: str, *, unload_dependents: bool = False) -> None:
        """The same as `unload_model`, for an event loop"""
        await asyncio.to_thread(self.unload_model, model_name, unload_dependents=unload_dependents)

    def _reroute(self, name: str, change: Mapping[str, Any]) -> None:
        check_name(name)
        self._own()
        self._control.reroute(name, json.dumps(change))

    async def _async_reroute(self, name: str, change: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self._reroute, name, change)

    def models(self) -> list[ModelState]:
        """Every model and version with its state"""
        return [ModelState(*row) for row in self._own().index()]

    def statistics(self) -> dict[str, Any]:
        """The statistics of all models, as GET /v2/models/stats answers them"""
        verb = verbs.statistics("", "")
        return verbs.document(verb, self._own().call(verb.name, verb.arguments_json()))

    def serve_http(self, address: str = "127.0.0.1", port: int = 8000, *, reuse_port: bool = False) -> int:
        """Opens the HTTP door and answers its port; port 0 takes a free one"""
        return self._own().serve_http(address, _checked_port(port), reuse_port)

    def serve_http_unix(self, path: str | Path) -> None:
        """Opens the HTTP door on a Unix socket"""
        self._own().serve_http_unix(str(path))

    def serve_local(self, path: str | Path) -> None:
        """Opens the local door on a Unix socket: for `Client("unix://…")` of the same user on this host"""
        self._own().serve_local(str(path))

    def serve_grpc(self, address: str = "127.0.0.1", port: int = 8001, *, reuse_port: bool = False) -> int:
        """Opens the gRPC door and answers its port; port 0 takes a free one"""
        self._describe_grpc()
        return self._own().serve_grpc(address, _checked_port(port), reuse_port)

    def serve_grpc_unix(self, path: str | Path) -> None:
        """Opens the gRPC door on a Unix socket"""
        self._describe_grpc()
        self._own().serve_grpc_unix(str(path))

    def serve_grpc_handover(self, path: str | Path) -> None:
        """Opens a Unix socket on which other processes of this user hand over connections that speak gRPC"""
        self._describe_grpc()
        self._own().serve_grpc_handover(str(path))

    def serve_metrics(self, address: str = "127.0.0.1", port: int = 8002, *, tls: bool = False) -> int:
        """
        Opens the metrics door and answers its port; port 0 takes a free one. It is plain unless `tls` asks for what the
        HTTP doors speak
        """
        return self._own().serve_metrics(address, _checked_port(port), tls)

    def drain(self, timeout_seconds: float) -> int:
        """
        Refuses new requests, gives up the loads that go on, waits for the requests accepted, and answers how many are
        left; may be called again
        """
        core = self._own()
        self._control.end_loads()
        return core.drain(timeout_seconds)

    def end_runs(self) -> None:
        """
        Ends with ShuttingDown what executes, where its framework can be interrupted, and what waits: for a drain that
        has run out of its time
        """
        self._own().end_runs()

    def close(self) -> None:
        """
        Closes doors and models: what executes is answered if it ends within a moment, what waits fails with
        ShuttingDown. Answers stay valid. A second call does nothing, nor does a call in a forked child.
        """
        if os.getpid() == self._process:
            self._closed = True
            self._control.close()
            self._core.close()
            self._repositories.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def __dir__(self) -> Iterable[str]:
        return sorted({*super().__dir__(), *filter(str.isidentifier, self._names() or ())})

    def __repr__(self) -> str:
        return f"Engine({', '.join(map(repr, self._repositories.names))})"

    def _names(self) -> set[str] | None:
        """The names of all models; None where the engine is closed, or another process's"""
        return None if self._closed or os.getpid() != self._process else {model.name for model in self.models()}

    def _check_attribute(self, name: str) -> None:
        names = self._names()
        if names is not None and name not in names:
            near = get_close_matches(name, names)
            meant = f", did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise AttributeError(
                f"{self!r} has no attribute and no model {name!r}{meant}; for a name that is no identifier there is "
                f"engine.model(…)"
            )

    def _call(self, verb: Verb, deadline: float | timedelta | None = None) -> Answer:  # noqa: ARG002 - at once
        core = self._own()
        if self._closed:
            raise ShuttingDown("the engine is closed", model=verb.model)
        return core.call(verb.name, verb.arguments_json())

    async def _async_call(self, verb: Verb, deadline: float | timedelta | None = None) -> Answer:
        return self._call(verb, deadline)

    def _describe_grpc(self) -> None:
        """For clients that ask what is spoken there"""
        files = described_files()
        self._own().describe_grpc(files, services_of(files))

    def _own(self) -> kushi_native.Core:
        if os.getpid() != self._process:
            raise Unsupported(
                f"this Engine belongs to process {self._process} and does not work in its forked child {os.getpid()}: "
                "make it after the fork"
            )
        return self._core


def _check_loaded(failures: Mapping[str, KushiError]) -> None:
    """One error that says all; the first failure is its cause"""
    if not failures:
        return
    (name, first), *more = sorted(failures.items())
    hint = "EngineOptions(exit_on_error=False) serves the others"
    if not more:
        raise ModelUnavailable(f"model '{name}' failed to load: {first} ({hint})", model=name) from first
    reasons = "".join(f"\n'{model}': {failure}" for model, failure in [(name, first), *more])
    raise ModelUnavailable(f"{len(failures)} models failed to load ({hint}):{reasons}") from first


def _checked_port(port: int) -> int:
    if not 0 <= port <= _LAST_PORT:
        raise ConfigInvalid(f"port is {port}, expected 0 to {_LAST_PORT}")
    return port
