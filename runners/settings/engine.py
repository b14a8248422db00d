"""What can be chosen about an engine: by a program, or by the flags of a server"""

import json
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path

from .._version import __version__
from ..integers import MAX_THREADS
from ..repository.backend_config import BackendConfig
from .buckets import BucketOptions
from .definition import Group, setting, stated
from .devices import DeviceOptions
from .grpc import GrpcOptions
from .http import HttpOptions
from .kinds import BackendDirectory, BackendSettings, Integer, Switch, Text
from .log import LogOptions
from .metrics import MetricsOptions
from .models import ModelOptions
from .rate_limit import RateLimitOptions
from .trace import TraceOptions

__all__ = ["EngineOptions"]

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


@dataclass(frozen=True, kw_only=True)
class EngineOptions(Group):
    """
    What can be chosen about an engine; every default is that of `kushi serve`.

        EngineOptions(exit_on_error=False, http=HttpOptions(max_connections=1000), log=LogOptions(verbose=1))

    Where `exit_on_error` is False, `Engine.failures` says which models could not be loaded.
    """

    title = "server"

    server_name: str = setting("id", Text("NAME"), "Name of the server in its metadata.", default="triton")
    exit_on_error: bool = setting("exit-on-error", Switch(), "Exit when a model cannot be loaded.", default=True)
    strict_readiness: bool = setting(
        "strict-readiness", Switch(), "Ready only when every model is; else when the server is.", default=True
    )
    io_threads: int | None = setting(
        "http-thread-count", Integer(1, MAX_THREADS), "Io threads (default: the usable cores).", default=None
    )
    client_shared_memory: bool = setting(
        "allow-client-shm",
        Switch(),
        "Let clients register shared memory of this host, and name it for inputs and outputs.",
        default=False,
    )
    backend_directory: str | None = setting(
        "backend-directory",
        BackendDirectory(),
        "Directory of backends in Python: the program in DIR/NAME executes all models whose backend is NAME.",
        default=None,
    )
    backend_config: BackendConfig = field(
        default_factory=dict,
        metadata=stated(
            "backend-config",
            BackendSettings(),
            "Setting of a backend, or without BACKEND of all of them.",
        ),
    )
    models: ModelOptions = field(default_factory=ModelOptions)
    buckets: BucketOptions = field(default_factory=BucketOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    rate_limit: RateLimitOptions = field(default_factory=RateLimitOptions)
    http: HttpOptions = field(default_factory=HttpOptions)
    grpc: GrpcOptions = field(default_factory=GrpcOptions)
    metrics: MetricsOptions = field(default_factory=MetricsOptions)
    trace: TraceOptions = field(default_factory=TraceOptions)
    log: LogOptions = field(default_factory=LogOptions)

    def __post_init__(self) -> None:
        self.check_objects()

    def to_json(self, repositories: tuple[Path, ...], *, logs: bool = True) -> str:
        """The options as the native core takes them; without `logs` the log of the process stays as it is"""
        return json.dumps(
            {
                "server_name": self.server_name,
                "server_version": __version__,
                "extensions": (*_EXTENSIONS, *self._allowed_extensions()),
                "strict_readiness": self.strict_readiness,
                "repositories": [str(path.absolute()) for path in repositories],
                "explicit_control": self.models.control == "explicit",
                "allow_client_regions": self.client_shared_memory,
                "io_threads": self.io_threads,
                "rate_limit": self.rate_limit.native,
                "http": _door(self.http),
                "grpc": _door(self.grpc),
                "metrics": self.metrics.native,
                "trace": self.trace.native,
                "log": self.log.native if logs else None,
            }
        )

    def _allowed_extensions(self) -> Iterable[str]:
        if self.client_shared_memory:
            yield "system_shared_memory"


def _door(options: HttpOptions | GrpcOptions) -> dict[str, object]:
    return {
        **asdict(options),
        "tls": options.tls and astuple(options.tls),
        "restrictions": [astuple(rule) for rule in options.restrictions],
    }
