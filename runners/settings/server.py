"""What `kushi serve` can be told: about its engine, its doors and its life"""

from dataclasses import dataclass, field, replace
from itertools import combinations

from ..errors import InvalidInput
from ..integers import INT32_MAX
from .definition import Group, Naming, setting
from .engine import EngineOptions
from .grpc import GrpcDoors
from .http import HttpDoors
from .kinds import Integer, Several, Text
from .local import LocalDoor
from .metrics import MetricsDoor

__all__ = ["Doors", "ServerSettings"]


@dataclass(frozen=True, kw_only=True)
class Doors(Group):
    """Where a server listens."""

    title = "server"

    address: str = setting(
        "address",
        Text("ADDRESS"),
        "Address of all ports that do not state their own.",
        default="0.0.0.0",  # noqa: S104 - as tritonserver's
    )
    http: HttpDoors = field(default_factory=HttpDoors)
    grpc: GrpcDoors = field(default_factory=GrpcDoors)
    local: LocalDoor = field(default_factory=LocalDoor)
    metrics: MetricsDoor = field(default_factory=MetricsDoor)


@dataclass(frozen=True, kw_only=True)
class ServerSettings(Group):
    """What `kushi serve` can be told."""

    title = "server"

    repositories: tuple[str, ...] = setting(
        "model-repository",
        Several("PATH"),
        "Directory of models, also in a bucket (s3://, gs://, as://), or one model file.",
        default=(),
        aliases=("model-store",),
    )
    exit_timeout_seconds: int = setting(
        "exit-timeout-secs", Integer(0, INT32_MAX), "Seconds to wait at exit for requests in flight.", default=30
    )
    drain_fd: int | None = setting(
        "drain-fd",
        Integer(0, INT32_MAX, "FD"),
        "Inherited end of a pipe: a byte on it, or its end, drains. SIGTERM, SIGINT and SIGHUP are then ignored. For "
        "supervisors.",
        default=None,
    )
    doors: Doors = field(default_factory=Doors)
    engine: EngineOptions = field(default_factory=EngineOptions)

    @property
    def keeps_grpc_shut(self) -> bool:
        """Whether a door is not opened that nobody has asked for, since the one beside it is locked and it is not"""
        return self.doors.grpc.enabled is None and self._locks_http_alone

    @property
    def open_doors(self) -> Doors:
        """Where it listens, with what is not stated"""
        grpc = self.doors.grpc
        if grpc.enabled is None:
            grpc = replace(grpc, enabled=not self.keeps_grpc_shut)
        if self.locks_plain_grpc:
            grpc = replace(grpc, handover=None)
        return replace(self.doors, grpc=grpc)

    @property
    def locks_plain_grpc(self) -> bool:
        """Whether no connection may be handed over: those come without TLS"""
        return self._locks_http_alone or bool(self.engine.grpc.tls)

    @property
    def _locks_http_alone(self) -> bool:
        http, grpc = self.engine.http, self.engine.grpc
        return bool(http.tls or http.restrictions) and not (grpc.tls or grpc.restrictions)

    def check_serving(self, name: Naming) -> None:
        """Raises where this cannot be served: an engine behind a Bento has other doors, and models of its own"""
        if not self.repositories:
            raise InvalidInput(f"expected a model repository: {name('repositories')} DIR, or a model file")
        doors = self.open_doors
        http, grpc, local = doors.http, doors.grpc, doors.local
        sockets = {
            "doors.local.socket": local.socket,
            "doors.http.socket": http.socket,
            "doors.grpc.socket": grpc.socket,
            "doors.grpc.handover": grpc.handover,
        }
        if not http.enabled and not grpc.enabled and not any(sockets.values()):
            raise InvalidInput(
                f"nothing to serve: HTTP is switched off by {name('doors.http.enabled')}=false, gRPC by "
                f"{name('doors.grpc.enabled')}=false, and no socket is given ({name('doors.http.socket')}, "
                f"{name('doors.grpc.socket')}, {name('doors.local.socket')})"
            )
        if doors.metrics.tls and not self.engine.http.tls:
            raise InvalidInput(f"{name('doors.metrics.tls')} needs TLS on the HTTP port, whose certificate it shows")
        for (one, path), (other, same) in combinations(sockets.items(), 2):
            if path is not None and path == same:
                raise InvalidInput(f"{name(one)} and {name(other)} are both {path}: choose two paths")
