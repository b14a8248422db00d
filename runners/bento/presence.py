"""
Who may still ask an engine, and who stands still.

Every worker holds a connection to the one that keeps the engine, for as long as it lives; the kernel closes those of
workers that died. An engine that is to stop waits until all have let go, since BentoML stops all services at the same
moment and workers finish what they have accepted. A worker holds the engine's lifeline, too.

BentoML starts workers again that have ended, but keeps one that stands still for ever, with all that it has accepted.
So both ends say that they are there, and the one that has heard nothing for two seconds kills the other. Threads do
that: an endpoint that computes, and keeps the event loop from all else, does not stand still. Nor does one that keeps
all threads of Python from running, as long as it uses its processor, waits for one, or waits for a disk; but that is
bounded, as the watchdog bounds what keeps an event loop.
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

from .activity import Activity, threads_of
from .lifeline import hold_lifeline
from .watchdog import LEAST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .place import Place

__all__ = ["Attendance", "attend", "handle_on"]

_LOG = logging.getLogger(__name__)
_AGAIN_SECONDS: Final = 0.25
_BEAT_SECONDS: Final = 0.25
_MOST_SILENT_BEATS: Final = 8
_LOOKED_AT_BEATS: Final = 4
_BEAT: Final = b"."
_PATIENCE: Final = struct.Struct("!I")


class Attendance:
    """The workers that are there"""

    def __init__(self, path: Path) -> None:
        """Takes the place of a socket that was left behind"""
        self._path = path
        self.present = 0
        self._is_open = True
        self._ends = False
        self._changed = threading.Condition()
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen()
        _in_thread(self._accept)

    async def until_empty(self) -> None:
        """Comes back when no worker is there, which have been told to end"""
        self._ends = True
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
            try:
                _in_thread(self._hold, connection)
            except RuntimeError:
                # No thread is to be had for now: it comes again.
                connection.close()
                self._leave()

    def _hold(self, connection: socket.socket) -> None:
        try:
            _stay(connection, "a worker", LEAST_SECONDS, lambda: self._ends)
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._changed:
            self.present -= 1
            self._changed.notify_all()


async def attend(place: Place, patience: int) -> None:
    """
    Is there until it is cancelled; comes again when the engine's service was started again.

    patience: how long this process may compute, in seconds, and keep all of its threads from running
    """
    held: int | None = None
    try:
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            # Nobody there, and nobody who accepts: both will pass.
            connection.settimeout(0)
            try:
                connection.connect(str(place.presence))
                # Held while nobody keeps the engine, and until there is a newer one.
                before, held = held, hold_lifeline(place.lifeline)
                if before is not None:
                    os.close(before)
            except OSError:
                connection.close()
            else:
                try:
                    await _staying(connection, patience)
                except RuntimeError:
                    # No thread is to be had for now.
                    connection.close()
                finally:
                    # The thread closes it; this tells it to.
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
            await asyncio.sleep(_AGAIN_SECONDS)
    finally:
        if held is not None:
            os.close(held)


async def _staying(connection: socket.socket, patience: int) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def stay() -> None:
        try:
            _stay(connection, "the worker that keeps the engine", patience)
        finally:
            # The loop may be closed: then nobody waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(over.set)

    _in_thread(stay)
    await over.wait()


def _stay(connection: socket.socket, other: str, patience: int, ends: Callable[[], bool] = lambda: False) -> None:
    """Comes back when either end has let go, or when the other one stood still and was killed"""
    pid = _process_of(connection)
    # not select(), which knows no descriptors above 1023
    heard = select.poll()
    heard.register(connection, select.POLLIN)
    with connection, contextlib.suppress(OSError), handle_on(pid) as handle:
        connection.send(_PATIENCE.pack(patience))
        silent, computing, next_beat = 0, 0, time.monotonic()
        theirs = 0
        activity: Activity | None = None
        while True:
            if heard.poll(max(0.0, next_beat - time.monotonic()) * 1e3):
                data = connection.recv(4096)
                if not data:
                    return
                # It comes first, and is never zero.
                theirs = theirs or _PATIENCE.unpack_from(data)[0]
                silent = computing = 0
                continue
            # Counted, not measured: who was stopped together with the other has not heard it either.
            silent += 1
            # The other one may have let so many wait that no more fit.
            with contextlib.suppress(BlockingIOError):
                connection.send(_BEAT, socket.MSG_DONTWAIT)
            next_beat = time.monotonic() + _BEAT_SECONDS
            if silent >= _MOST_SILENT_BEATS and handle is not None and activity is not None:
                if not activity.goes_on():
                    break
                computing += silent - _LOOKED_AT_BEATS
                if computing * _BEAT_SECONDS >= (LEAST_SECONDS if ends() else theirs or LEAST_SECONDS):
                    break
                silent = _LOOKED_AT_BEATS
            if silent == _LOOKED_AT_BEATS:
                activity = Activity(pid)
        _LOG.error(
            "%s stands still: process %d is killed, BentoML starts another one. Its threads: %s",
            other,
            pid,
            threads_of(pid),
        )
        signal.pidfd_send_signal(handle, signal.SIGKILL)


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
