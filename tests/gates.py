"""A run of a model that stands still as long as a test wants, and uses no processor meanwhile.

Models that `models.write_gated` writes have an operator of their own (`native/crates/engine-onnx/examples/`). For a
request of `HELD` steps it connects to the gate of its model and waits until that connection is closed: so a test knows
that the request executes, and says when it ends. Where there is no gate, nothing is held.
"""

from __future__ import annotations

import hashlib
import socket
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["HELD", "Gate", "gate_name"]

HELD: Final = -1
"""Steps of a request that waits at the gate"""

WAIT_S: Final = 30.0


def gate_name(repository: Path, model: str) -> str:
    """The abstract address of the gate of a model, wherever it is served"""
    place = f"{repository.resolve()}/{model}"
    return f"kushi-gate-{hashlib.sha256(place.encode()).hexdigest()[:32]}"


class Gate:
    """Holds the runs of a model from now on, one or more at the same time"""

    def __init__(self, repository: Path, model: str = "slow") -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"\0{gate_name(repository, model)}")
        self._listener.listen()
        self._listener.settimeout(WAIT_S)
        self._held: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def until_reached(self) -> None:
        """Comes back when one more run stands here"""
        self._held.append(self._listener.accept()[0])

    def is_reached(self) -> bool:
        """Whether one more run stands here already"""
        self._listener.setblocking(False)
        try:
            self.until_reached()
        except BlockingIOError:
            return False
        finally:
            self._listener.settimeout(WAIT_S)
        return True

    def let_through(self) -> None:
        """Lets the first of those that stand here go on"""
        self._held.pop(0).close()

    def close(self) -> None:
        """Holds nothing any more"""
        self._listener.close()
        for held in self._held:
            held.close()
        self._held.clear()
