"""
What an engine lives by: a named pipe that it reads, and that its keeper and all workers that may ask it hold open.

A byte on it, or its end, tells the engine to finish what it has accepted and to exit. Its end comes when the last of
them has gone: so an engine outlives its keeper, the next one takes it over, and nothing is left when all are killed.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Lifeline", "hold_lifeline"]


class Lifeline:
    """The keeper's side: it makes the pipe, or finds it in use"""

    def __init__(self, path: Path) -> None:
        self._path = path
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Nobody can write where nobody reads.
        self.reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._writer = hold_lifeline(path)
        # The engine, which inherits it, waits for the byte.
        os.set_blocking(self.reader, True)

    def end_engine(self) -> None:
        """Only for an engine that lives: the byte stays until somebody reads it"""
        os.write(self._writer, b"\0")

    def close(self) -> None:
        os.close(self.reader)
        os.close(self._writer)
        self._path.unlink(missing_ok=True)


def hold_lifeline(path: Path) -> int:
    """A descriptor that keeps the engine alive until it is closed"""
    return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
