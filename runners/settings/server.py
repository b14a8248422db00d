"""What `kushi serve` can be told: about its engine, its doors and its life"""

from dataclasses import dataclass, field

from ..errors import InvalidInput
from ..integers import INT32_MAX
from .definition import Group, Naming, setting
from .engine import EngineOptions
from .http import HttpDoors
from .kinds import Integer, Several
from .local import LocalDoor
from .metrics import MetricsDoor

__all__ = ["Doors", "ServerSettings"]


@dataclass(frozen=True, kw_only=True)
class Doors(Group):
    """Where a server listens."""

    http: HttpDoors = field(default_factory=HttpDoors)
    local: LocalDoor = field(default_factory=LocalDoor)
    metrics: MetricsDoor = field(default_factory=MetricsDoor)


@dataclass(frozen=True, kw_only=True)
class ServerSettings(Group):
    """What `kushi serve` can be told."""

    title = "server"

    repositories: tuple[str, ...] = setting(
        "model-repository",
        Several("PATH"),
        "Directory of models, or one model file.",
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

    def check_serving(self, name: Naming) -> None:
        """Raises where this cannot be served: an engine behind a Bento has other doors, and models of its own"""
        if not self.repositories:
            raise InvalidInput(f"expected a model repository: {name('repositories')} DIR, or a model file")
        http, local = self.doors.http, self.doors.local
        if not http.enabled and http.socket is None and local.socket is None:
            raise InvalidInput(
                f"nothing to serve: HTTP is switched off by {name('doors.http.enabled')}=false, and no "
                f"{name('doors.http.socket')} or {name('doors.local.socket')} is given"
            )
        if local.socket is not None and local.socket == http.socket:
            raise InvalidInput(
                f"{name('doors.local.socket')} and {name('doors.http.socket')} are both {local.socket}: choose two "
                "paths"
            )
