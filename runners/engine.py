"""
Engine: a model repository opened in this process.

It owns the native core and drives it from the control plane's side only: it loads models, opens doors, drains, closes.
Requests never pass through Python. An engine belongs to the process that made it; a forked child gets a clear error.
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import kushi_native

from ._version import __version__
from .backends import backend
from .errors import ConfigInvalid, KushiError, Unsupported, factories
from .log import LogOptions
from .repository.layout import ModelSource, scan
from .repository.resolve import resolve

__all__ = ["Engine", "EngineOptions", "ModelState"]

_LOG = logging.getLogger(__name__)
_EXTENSIONS = ("model_configuration", "binary_tensor_data", "parameters", "statistics")
_PROGRESS_SECONDS = 2.0


@dataclass(frozen=True)
class EngineOptions:
    """What can be chosen about an engine; every default is that of `kushi serve`"""

    server_name: str = "triton"
    auto_complete: bool = True
    load_threads: int = 4
    strict_readiness: bool = True
    io_threads: int | None = None
    http_max_input_bytes: int = 64 * 1024 * 1024
    cpu_metrics: bool = True
    metrics_interval_ms: int = 2000
    log: LogOptions = field(default_factory=LogOptions)

    def to_json(self) -> str:
        """The options as the native core takes them"""
        return json.dumps(
            {
                "server_name": self.server_name,
                "server_version": __version__,
                "extensions": _EXTENSIONS,
                "strict_readiness": self.strict_readiness,
                "io_threads": self.io_threads,
                "http": {"max_input_bytes": self.http_max_input_bytes},
                "metrics": {"cpu": self.cpu_metrics, "interval_ms": self.metrics_interval_ms},
                "log": asdict(self.log),
            }
        )


@dataclass(frozen=True)
class ModelState:
    """One row of the repository index"""

    name: str
    version: str
    state: str
    reason: str


class Engine:
    """
    All models of one or more repositories, or of a bare model file, ready to be served.

    A model that cannot be loaded does not stop the others: `failures` says which, and why.
    """

    def __init__(self, *repositories: str | Path, options: EngineOptions | None = None) -> None:
        self._options = options or EngineOptions()
        self._process = os.getpid()
        self._failures: dict[str, KushiError] = {}
        kushi_native.register_errors(factories())
        found = scan(Path(repository) for repository in repositories)
        self._core = kushi_native.Core(self._options.to_json())
        try:
            for name, reason in found.refused.items():
                self._fail(name, [None], Unsupported(reason, model=name))
            self._load_all(found.models)
            self._core.set_started()
        except BaseException:
            self._core.close()
            raise

    @property
    def failures(self) -> Mapping[str, KushiError]:
        """The models that could not be loaded"""
        return MappingProxyType(self._failures)

    def models(self) -> list[ModelState]:
        """Every model and version with its state"""
        return [ModelState(*row) for row in self._own().index()]

    def statistics(self) -> dict[str, Any]:
        """The statistics of all models, as GET /v2/models/stats answers them"""
        plain: dict[str, Any] = json.loads(self._own().statistics())
        return plain

    def serve_http(self, address: str = "127.0.0.1", port: int = 8000, *, reuse_port: bool = False) -> int:
        """Opens the HTTP door and answers its port; port 0 takes a free one"""
        return self._own().serve_http(address, port, reuse_port)

    def serve_http_unix(self, path: str | Path) -> None:
        """Opens the HTTP door on a Unix socket"""
        self._own().serve_http_unix(str(path))

    def serve_metrics(self, address: str = "127.0.0.1", port: int = 8002) -> int:
        """Opens the metrics door and answers its port"""
        return self._own().serve_metrics(address, port)

    def drain(self, timeout_seconds: float) -> int:
        """Refuses new requests, waits for those accepted, and answers how many are left; may be called again"""
        return self._own().drain(timeout_seconds)

    def close(self) -> None:
        """Closes doors and models. A second call does nothing, nor does a call in a forked child"""
        if os.getpid() == self._process:
            self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _own(self) -> kushi_native.Core:
        if os.getpid() != self._process:
            raise Unsupported(
                f"this Engine belongs to process {self._process} and does not work in its forked child {os.getpid()}: "
                "make it after the fork"
            )
        return self._core

    def _load_all(self, sources: Sequence[ModelSource]) -> None:
        with ThreadPoolExecutor(self._options.load_threads, thread_name_prefix="kushi-load") as pool:
            waiting = {pool.submit(self._load, source): source.name for source in sources}
            for names in _still_waiting(waiting):
                _LOG.info("still loading: %s", ", ".join(names))
        for done in waiting:
            done.result()

    def _load(self, source: ModelSource) -> None:
        loading: Sequence[int | None] = [None]
        try:
            resolved = resolve(source, auto_complete=self._options.auto_complete)
            engine = backend(resolved.config.backend)
            ready = []
            for version in resolved.versions:
                loading = [version]
                _LOG.info("loading: %s:%d", source.name, version)
                loaded = engine.load(source, resolved.config, version, auto_complete=self._options.auto_complete)
                ready.append((loaded.specification.model_dump_json(), loaded.sessions))
                _LOG.debug("'%s' version %d runs on %d thread(s)", source.name, version, loaded.intra_op_threads)
            loading = resolved.versions
            self._core.load(source.name, ready)
        except KushiError as error:
            self._fail(source.name, loading, error)
        except OSError as error:
            self._fail(
                source.name,
                loading,
                ConfigInvalid(f"{error.filename or source.path}: {error.strerror or error}", model=source.name),
            )
        else:
            for version in resolved.versions:
                _LOG.info("successfully loaded '%s' version %d", source.name, version)

    def _fail(self, name: str, versions: Sequence[int | None], error: KushiError) -> None:
        self._failures[name] = error
        for version in versions:
            named = f"'{name}'" if version is None else f"'{name}' version {version}"
            _LOG.error("failed to load %s: %s", named, error)
            self._core.fail(name, version, str(error))


def _still_waiting(futures: Mapping[Future[None], str]) -> Iterator[list[str]]:
    """The names of what is not done, each time that a while has passed, until all is"""
    started = time.monotonic()
    while pending := wait(futures, timeout=_PROGRESS_SECONDS).not_done:
        if time.monotonic() - started >= _PROGRESS_SECONDS:
            yield sorted(futures[future] for future in pending)
