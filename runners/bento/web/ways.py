"""What leads from the connections of a worker to the engine, past the application"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..relay.shortcut import Shortcut
    from .handover import Handover

__all__ = ["Ways"]


@dataclass(frozen=True)
class Ways:
    """Asked for at each connection: the application offers them while it runs"""

    shortcut: Callable[[], Shortcut | None] = lambda: None
    """For ordinary requests"""
    handover: Callable[[], Handover | None] = lambda: None
    """For whole connections that speak gRPC"""
