"""A load that stands still as long as a test wants, at a regular file and without a part of the server replaced.

Whoever holds a lease on a file makes others wait who open it, until the lease is given back: so ONNX Runtime waits when
it opens the model.
"""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["HeldFile", "hold_file"]


class HeldFile:
    """A file that nobody else can open for now"""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def wait_until_asked_for(self) -> None:
        """Until somebody waits for the file"""
        eventually(self.is_asked_for, "the file is opened")

    def is_asked_for(self) -> bool:
        return fcntl.fcntl(self._descriptor, fcntl.F_GETLEASE) != fcntl.F_WRLCK

    def release(self) -> None:
        """Lets them go on"""
        with suppress(OSError):
            fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


@contextmanager
def hold_file(path: Path) -> Iterator[HeldFile]:
    """Holds an existing file until it is released, or until the end of the block"""
    # the system tells of who waits by a signal, which would end this process
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        held = HeldFile(descriptor)
        try:
            yield held
        finally:
            held.release()
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, before)
