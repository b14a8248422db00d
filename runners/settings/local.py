"""The local door: for clients of the same user on this host"""

from dataclasses import dataclass

from .definition import Group, setting
from .kinds import Text

__all__ = ["LocalDoor"]


@dataclass(frozen=True, kw_only=True)
class LocalDoor(Group):
    """Where a server has its local door."""

    title = "local socket"

    socket: str | None = setting(
        "local-socket",
        Text("PATH"),
        "Path of a Unix socket for Client('unix://PATH') of the same user on this host (default: none).",
        default=None,
    )
