"""What can be chosen about an engine: by a program, or by the flags of a server"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass, field
from typing import TYPE_CHECKING, Literal

from ._version import __version__
from .errors import ConfigInvalid
from .log import LogOptions
from .repository.backend_config import BackendConfig, check_backend_config, parse_backend_config
from .restrictions import Restriction
from .tls import ServerTls, server_tls

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .settings import ServerSettings

__all__ = ["ALL_MODELS", "EngineOptions", "Limits", "engine_options", "log_options"]

ALL_MODELS = "*"
_EXTENSIONS = (
    "classification",
    "model_repository",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "schedule_policy",
    "trace",
    "logging",
)


@dataclass(frozen=True)
class Limits:
    """
    What clients may ask of the doors; every default is that of `kushi serve`.

    max_input_bytes: of a body, and of a tensor in its JSON.
    max_chunks, max_head_bytes, max_headers, max_json_depth: of a request over HTTP.
    max_tensors: inputs and requested outputs of a request together.
    head_timeout_seconds: from the first byte of a request to the last of its head; for a TLS handshake, too.
    body_timeout_seconds: without progress of a body that is awaited, or of an answer that is not read.
    min_body_rate: bytes per second that make a body progress, averaged over that time.
    idle_timeout_seconds: between two requests.
    max_connections: of each door.
    max_inflight_bytes: that large requests and answers in flight hold, over all doors.
    """

    max_input_bytes: int = 64 * 1024 * 1024
    max_chunks: int = 65536
    max_head_bytes: int = 64 * 1024
    max_headers: int = 100
    max_json_depth: int = 100
    max_tensors: int = 1024
    head_timeout_seconds: int = 10
    body_timeout_seconds: int = 30
    min_body_rate: int = 500
    idle_timeout_seconds: int = 75
    max_connections: int = 16384
    max_inflight_bytes: int = 1024 * 1024 * 1024


@dataclass(frozen=True)
class EngineOptions:
    """
    What can be chosen about an engine; every default is that of `kushi serve`.

    server_name: the name in the metadata.
    auto_complete: complete config.pbtxt from the model.
    load_threads: how many models are loaded at the same time.
    backend_config: settings by backend, {"onnxruntime": {"default-max-batch-size": "8"}}; "" stands for all of them.
    strict_readiness: ready only when every model is.
    model_control, load_models: "none" loads all models at the start; "explicit" loads those of load_models, ("*",) for
        all, and lets clients load others.
    io_threads: None for the usable cores.
    http_tls: what the doors on TCP speak TLS with; None for plain connections.
    http_restrictions: which routes over HTTP ask for a token; the local socket asks for none.
    limits: what clients may ask for.
    http_header_forward_pattern: a regular expression; headers with such names become parameters of their requests.
    client_shared_memory: let clients register shared memory of this host.
    cpu_metrics, metrics_interval_ms: whether metrics include nv_cpu_*, and how often those are read.
    log: what is logged.
    """

    server_name: str = "triton"
    auto_complete: bool = True
    load_threads: int = 4
    backend_config: BackendConfig = field(default_factory=dict)
    strict_readiness: bool = True
    model_control: Literal["none", "explicit"] = "none"
    load_models: tuple[str, ...] = ()
    io_threads: int | None = None
    http_tls: ServerTls | None = None
    http_restrictions: tuple[Restriction, ...] = ()
    limits: Limits = field(default_factory=Limits)
    http_header_forward_pattern: str | None = None
    client_shared_memory: bool = False
    cpu_metrics: bool = True
    metrics_interval_ms: int = 2000
    log: LogOptions = field(default_factory=LogOptions)

    def __post_init__(self) -> None:
        if self.load_threads < 1:
            raise ConfigInvalid(f"load_threads is {self.load_threads}, expected 1 or more")
        check_backend_config(self.backend_config)
        if self.load_models and self.model_control != "explicit":
            raise ConfigInvalid("load_models needs model_control='explicit': without it all models are loaded")
        if ALL_MODELS in self.load_models and len(self.load_models) > 1:
            raise ConfigInvalid(f"load_models: '{ALL_MODELS}' stands for all models, expected no other name beside it")

    def to_json(self, repositories: tuple[Path, ...]) -> str:
        """The options as the native core takes them"""
        return json.dumps(
            {
                "server_name": self.server_name,
                "server_version": __version__,
                "extensions": (*_EXTENSIONS, *self._allowed_extensions()),
                "strict_readiness": self.strict_readiness,
                "repositories": [str(path.absolute()) for path in repositories],
                "explicit_control": self.model_control == "explicit",
                "allow_client_regions": self.client_shared_memory,
                "io_threads": self.io_threads,
                "http": {
                    **asdict(self.limits),
                    "tls": self.http_tls and astuple(self.http_tls),
                    "restrictions": [(rule.apis, rule.header, rule.value) for rule in self.http_restrictions],
                    "header_forward_pattern": self.http_header_forward_pattern,
                },
                "metrics": {"cpu": self.cpu_metrics, "interval_ms": self.metrics_interval_ms},
                "log": asdict(self.log),
            }
        )

    def _allowed_extensions(self) -> Iterable[str]:
        if self.client_shared_memory:
            yield "system_shared_memory"


def engine_options(settings: ServerSettings) -> EngineOptions:
    """What the flags of a server say about its engine"""
    return EngineOptions(
        server_name=settings.id,
        auto_complete=not settings.disable_auto_complete_config,
        load_threads=settings.model_load_thread_count,
        backend_config=parse_backend_config(settings.backend_config),
        strict_readiness=settings.strict_readiness,
        model_control=settings.model_control_mode,
        load_models=settings.load_model,
        io_threads=settings.http_thread_count,
        http_tls=server_tls(settings),
        http_restrictions=settings.http_restricted_api,
        limits=_limits(settings),
        http_header_forward_pattern=settings.http_header_forward_pattern,
        client_shared_memory=settings.allow_client_shm,
        cpu_metrics=settings.allow_cpu_metrics,
        metrics_interval_ms=settings.metrics_interval_ms,
        log=log_options(settings),
    )


def _limits(settings: ServerSettings) -> Limits:
    return Limits(
        max_input_bytes=settings.http_max_input_size,
        max_chunks=settings.http_max_chunks,
        max_head_bytes=settings.http_max_head_size,
        max_headers=settings.http_max_headers,
        max_json_depth=settings.http_max_json_depth,
        max_tensors=settings.http_max_tensors,
        head_timeout_seconds=settings.http_head_timeout_secs,
        body_timeout_seconds=settings.http_body_timeout_secs,
        min_body_rate=settings.http_min_body_rate,
        idle_timeout_seconds=settings.http_idle_timeout_secs,
        max_connections=settings.http_max_connections,
        max_inflight_bytes=settings.max_inflight_bytes,
    )


def log_options(settings: ServerSettings) -> LogOptions:
    """What the flags of a server say about its log"""
    return LogOptions(
        verbose=settings.log_verbose,
        info=settings.log_info,
        warning=settings.log_warning,
        error=settings.log_error,
        form=settings.log_format,
        file=settings.log_file or "",
    )
