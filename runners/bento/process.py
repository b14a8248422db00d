"""
The engine's process: started, watched, started again when it dies or stands still, drained at the end.

It lives by a pipe that all workers which may ask it hold open, too: so it goes on when the worker that keeps it has
died, and the next one takes it over. Signals to the group, which BentoML and terminals send, it does not hear.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import select
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..client import Client
from ..environment import environment_of_child
from ..errors import KushiError
from .activity import Activity
from .lifeline import Lifeline
from .watchdog import LEAST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .place import Place

__all__ = ["EngineProcess", "Pauses"]

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 0.5
_LATE_SECONDS = 0.75
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_STARTS_AT_ONCE = 5
_STARTS_WITHIN_SECONDS = 5.0
_LONGEST_PAUSE_AFTER_SERVING_SECONDS = 1.0
_GRACE_SECONDS = 5.0
_STANDARD_ERROR = 2
_PACKAGE = __name__.partition(".")[0]
_ROOT = Path(__file__).resolve().parents[2]


class EngineProcess:
    """One engine at a time, for as long as this object is open"""

    def __init__(self, flags: Sequence[str], place: Place, exit_seconds: float, *, keep_trying: bool) -> None:
        """keep_trying: also where the first engine ends before it has served; otherwise this process ends then, too"""
        self._place = place
        self._lifeline = Lifeline(place.lifeline)
        self._local = f"--local-socket={place.local}"
        self._flags = [*flags, self._local, f"--http-socket={place.http}"]
        self._exit_seconds = exit_seconds
        self._keep_trying = keep_trying
        self._client = Client(f"unix://{place.local}")
        self._process: _Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._pauses = Pauses()
        self._doors: int | None = None

    async def start(self) -> None:
        """Comes back at once: loading may take any time, and this process must be able to end meanwhile"""
        self._process = await asyncio.to_thread(self._take_over)
        self._keeping = asyncio.create_task(self._keep(self._process or await self._spawn()))

    async def stop(self) -> None:
        """Drains the engine and waits for its end"""
        if self._keeping is not None:
            self._keeping.cancel()
            # It may be starting one at this moment.
            await asyncio.wait([self._keeping])
        process, self._process = self._process, None
        if process is not None:
            self._lifeline.end_engine()
            try:
                await asyncio.wait_for(process.wait(), self._exit_seconds + _GRACE_SECONDS)
            except TimeoutError:
                _LOG.error("the engine has not ended %.0f s after it was told to, killing it", self._exit_seconds)
                process.kill()
                await process.wait()
        # One that was killed has left them.
        for path in (self._place.local, self._place.http, self._place.grpc):
            path.unlink(missing_ok=True)
        self._lifeline.close()
        self._client.close()

    async def is_ready(self) -> bool:
        """Whether the engine serves all that it should"""
        try:
            return await self._client.async_is_server_ready(deadline=_ANSWER_SECONDS)
        except KushiError:
            return False

    async def _keep(self, process: _Process) -> None:
        while True:
            what = await self._until_it_fails(process)
            self._process = None
            served = self._opened_doors() != self._doors
            self._keep_trying = self._keep_trying or served
            if not self._keep_trying:
                _LOG.error("the engine %s before it served, see its log above: so does this process", what)
                logging.shutdown()
                os._exit(1)
            started = None
            while started is None:
                pause = self._pauses.before_next(time.monotonic(), served=served)
                _LOG.error("the engine %s: it is started again %s", what, f"in {pause:.1f} s" if pause else "at once")
                await asyncio.sleep(pause)
                try:
                    started = await self._spawn()
                except OSError as error:
                    what, served = f"cannot be started, {error}", False
            process = started

    async def _until_it_fails(self, process: _Process) -> str:
        ends = asyncio.create_task(process.wait())
        silent = asyncio.create_task(self._until_it_stands_still(process.pid))
        try:
            await asyncio.wait((silent, ends), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            ends.cancel()
            raise
        finally:
            silent.cancel()
        if ends.done():
            code = ends.result()
            return "has ended" if code is None else f"has ended with exit code {code}"
        process.kill()
        await ends
        return "stood still and was killed"

    async def _until_it_stands_still(self, pid: int) -> None:
        # Loading may take any time.
        while not _has_listener(self._place.local):
            await asyncio.sleep(_LOOK_SECONDS / 2)
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if await self._is_silent() and await self._stays_silent(pid):
                return

    async def _stays_silent(self, pid: int) -> bool:
        """False where it answers again. One that works, or waits for a processor, has more time, and not for ever"""
        since = time.monotonic()
        # It may end meanwhile.
        with contextlib.suppress(OSError):
            while time.monotonic() - since < LEAST_SECONDS:
                activity = Activity(pid)
                await asyncio.sleep(_LOOK_SECONDS)
                if not await self._is_silent():
                    return False
                if not activity.goes_on():
                    break
        return True

    async def _is_silent(self) -> bool:
        """False also where this process came late to hear an answer"""
        asked = time.monotonic()
        try:
            return not await self._client.async_is_server_live(deadline=_ANSWER_SECONDS)
        except KushiError:
            return time.monotonic() - asked < _LATE_SECONDS

    @property
    def _command(self) -> list[str]:
        return [sys.executable, "-m", _PACKAGE, "serve", *self._flags]

    def _opened_doors(self) -> int | None:
        """When the last engine that came so far has opened its doors: its socket stays when it dies"""
        try:
            return self._place.local.stat().st_ctime_ns
        except OSError:
            return None

    def _take_over(self) -> _Process | None:
        """The engine of a worker that has died, if it was started as this one would start it; another one is ended"""
        for pid in _processes_with(self._local):
            # It may have ended.
            with contextlib.suppress(OSError):
                found = _TakenOver(pid)
                # Looked at again, since the handle is on this process and none that has its number later.
                words = _words_of(pid)
                if self._local not in words:
                    # It has ended, and a byte that it does not read would end the next engine.
                    continue
                if words[: len(self._command)] == self._command:
                    _LOG.warning("the engine of the worker before goes on, process %d", pid)
                    return found
                self._lifeline.end_engine()
                if not found.has_ended_within(self._exit_seconds):
                    _LOG.error("the engine of before has not ended %.0f s after it was told to", self._exit_seconds)
                    found.kill()
                    found.has_ended_within(_GRACE_SECONDS)
        return None

    async def _spawn(self) -> _Process:
        _make_uninheritable()
        self._doors = self._opened_doors()
        self._pauses.started(time.monotonic())
        reader = self._lifeline.reader
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            f"--drain-fd={reader}",
            stdin=DEVNULL,
            pass_fds=(reader,),
            env=environment_of_child(_ROOT),
        )
        return self._process


class _Process(Protocol):
    @property
    def pid(self) -> int: ...

    async def wait(self) -> int | None:
        """Comes back when it has ended, with its exit code where that can be known"""

    def kill(self) -> None: ...


class _TakenOver:
    """A process that another one has started"""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            os.close(self._handle)

    async def wait(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._handle)

    def has_ended_within(self, seconds: float) -> bool:
        watched = select.poll()
        watched.register(self._handle, select.POLLIN)
        return bool(watched.poll(seconds * 1e3))

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)


class Pauses:
    """
    Before an engine is started again. One that had served is started at once, but for one that dies of each request as
    soon as it serves; one that dies before it serves is given more and more time.
    """

    def __init__(self) -> None:
        self._starts: deque[float] = deque(maxlen=_STARTS_AT_ONCE)
        self._longer = _FIRST_PAUSE_SECONDS

    def started(self, now: float) -> None:
        self._starts.append(now)

    def before_next(self, now: float, *, served: bool) -> float:
        """In seconds; `served` is about the last one"""
        if not served:
            pause, self._longer = self._longer, min(2 * self._longer, _LONGEST_PAUSE_SECONDS)
            return pause
        self._longer = _FIRST_PAUSE_SECONDS
        if len(self._starts) < _STARTS_AT_ONCE:
            return 0.0
        pause = self._starts[0] + _STARTS_WITHIN_SECONDS - now
        return min(max(pause, 0.0), _LONGEST_PAUSE_AFTER_SERVING_SECONDS)


def _has_listener(path: Path) -> bool:
    """False also where this process has no descriptor to find out with: that says nothing of the engine"""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(0)
        # of one that stands still, too, even when no more connections fit before it
        return probe.connect_ex(str(path)) in {0, errno.EAGAIN}
    return False


def _make_uninheritable() -> None:
    """Uvloop closes nothing in a child, and an engine that outlives this process would hold the port of the service"""
    for path in Path("/proc/self/fd").iterdir():
        # That of the directory itself is gone.
        with contextlib.suppress(OSError):
            if int(path.name) > _STANDARD_ERROR:
                os.set_inheritable(int(path.name), False)  # noqa: FBT003 - positional only


def _words_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")


def _processes_with(word: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            if word in _words_of(int(path.name)):
                found.append(int(path.name))
    return found
