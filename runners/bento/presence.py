"""
Who may still ask an engine, and who stands still.

Every worker holds a connection to the one that keeps the engine, for as long as it lives; the kernel closes those of
workers that died. An engine that is to stop waits until all have let go, since BentoML stops all services at the same
moment and workers finish what they have accepted.

BentoML starts workers again that have ended, but keeps one that stands still for ever, with all that it has accepted.
So both ends say that they are there, and the one that has heard nothing for five seconds kills the other. Threads do
that: an endpoint that computes, and keeps the event loop from all else, does not stand still. Nor does one that keeps
all threads of Python from running, as long as it uses its processor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import struct
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Attendance", "attend", "handle_on"]

_LOG = logging.getLogger(__name__)
_AGAIN_SECONDS: Final = 0.25
_BEAT_SECONDS: Final = 0.5
_MOST_SILENT_BEATS: Final = 10
_LOOKED_AT_BEATS: Final = 5
# Of the time: threads of the core wake up now and then whatever Python does.
_COMPUTING_SHARE: Final = 0.1
_BEAT: Final = b"."


class Attendance:
    """The workers that are there"""

    def __init__(self, path: Path) -> None:
        """Takes the place of a socket that was left behind"""
        self._path = path
        self.present = 0
        self._is_open = True
        self._changed = threading.Condition()
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen()
        _in_thread(self._accept)

    async def until_empty(self) -> None:
        """Comes back when no worker is there"""
        await asyncio.to_thread(self._wait)

    def close(self) -> None:
        """Lets nobody in any more"""
        self._is_open = False
        self._path.unlink(missing_ok=True)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self.present)

    def _accept(self) -> None:
        while self._is_open:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                # It was closed, or no descriptor is free for now.
                time.sleep(_AGAIN_SECONDS)
                continue
            with self._changed:
                self.present += 1
            _in_thread(self._hold, connection)

    def _hold(self, connection: socket.socket) -> None:
        _stay(connection, "a worker")
        with self._changed:
            self.present -= 1
            self._changed.notify_all()


async def attend(path: Path) -> None:
    """Is there until it is cancelled; comes again when the engine's service was started again"""
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Nobody there, and nobody who accepts: both will pass.
        connection.settimeout(0)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
        else:
            try:
                await _staying(connection)
            finally:
                # The thread closes it; this tells it to.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        await asyncio.sleep(_AGAIN_SECONDS)


async def _staying(connection: socket.socket) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def stay() -> None:
        _stay(connection, "the worker that keeps the engine")
        # The loop may be closed: then nobody waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(over.set)

    _in_thread(stay)
    await over.wait()


def _stay(connection: socket.socket, other: str) -> None:
    """Comes back when either end has let go, or when the other one stood still and was killed"""
    pid = _process_of(connection)
    # not select(), which knows no descriptors above 1023
    heard = select.poll()
    heard.register(connection, select.POLLIN)
    with connection, contextlib.suppress(OSError), handle_on(pid) as handle:
        silent, next_beat = 0, time.monotonic()
        looked_at = worked = 0.0
        while True:
            if heard.poll(max(0.0, next_beat - time.monotonic()) * 1e3):
                if not connection.recv(4096):
                    return
                silent = 0
                continue
            # Counted, not measured: who was stopped together with the other has not heard it either.
            silent += 1
            connection.send(_BEAT, socket.MSG_DONTWAIT)
            next_beat = time.monotonic() + _BEAT_SECONDS
            if silent >= _MOST_SILENT_BEATS and handle is not None:
                if _seconds_worked(pid) - worked < _COMPUTING_SHARE * (time.monotonic() - looked_at):
                    break
                silent = _LOOKED_AT_BEATS
            if silent == _LOOKED_AT_BEATS:
                looked_at, worked = time.monotonic(), _seconds_worked(pid)
        _LOG.error("%s stands still: process %d is killed, BentoML starts another one", other, pid)
        signal.pidfd_send_signal(handle, signal.SIGKILL)


def _seconds_worked(pid: int) -> float:
    """The processor time of a process, whichever of its threads used it"""
    # The name before it, in parentheses, may be anything.
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _process_of(connection: socket.socket) -> int:
    """The process at the other end of a Unix socket"""
    form = "3i"
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form))
    return int(struct.unpack(form, found)[0])


@contextlib.contextmanager
def handle_on(pid: int) -> Iterator[int | None]:
    """A descriptor that means this process and never another, readable when it has ended; None before Linux 5.3"""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _in_thread(target: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=target, args=arguments, name="kushi-presence", daemon=True).start()
