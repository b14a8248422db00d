"""
The engine's process: started, watched, started again when it dies or stands still, drained at the end.

It is bound to this process by a pipe. A byte on it, or its end, tells the engine to finish what it has accepted and to
exit; signals to the group, which BentoML and terminals send, it does not hear.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import select
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path
from typing import TYPE_CHECKING

from ..client import Client
from ..doors import probe_unix
from ..errors import ConfigInvalid, KushiError
from ..settings import environment_of_child
from .presence import handle_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .place import Place

__all__ = ["EngineProcess"]

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 0.5
_MOST_SILENCES = 2
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_GRACE_SECONDS = 5.0
_STANDARD_ERROR = 2
_PACKAGE = __name__.partition(".")[0]
_ROOT = Path(__file__).resolve().parents[2]


class EngineProcess:
    """One engine at a time, for as long as this object is open"""

    def __init__(self, flags: Sequence[str], place: Place, exit_seconds: float, *, keep_trying: bool) -> None:
        """keep_trying: also where the first engine ends before it has served; otherwise this process ends then, too"""
        self._flags = flags
        self._place = place
        self._word = f"--local-socket={place.local}"
        self._exit_seconds = exit_seconds
        self._keep_trying = keep_trying
        self._client = Client(f"unix://{place.local}")
        self._process: Process | None = None
        self._lifeline: int | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._serves_since = math.inf

    async def start(self) -> None:
        """Comes back at once: loading may take any time, and this process must be able to end meanwhile"""
        await asyncio.to_thread(self._end_predecessor)
        self._keeping = asyncio.create_task(self._keep(await self._spawn()))

    async def stop(self) -> None:
        """Drains the engine and waits for its end"""
        if self._keeping is not None:
            self._keeping.cancel()
            # It may be starting one at this moment.
            await asyncio.wait([self._keeping])
        process = self._process
        self._let_go()
        if process is not None:
            try:
                await asyncio.wait_for(process.wait(), self._exit_seconds + _GRACE_SECONDS)
            except TimeoutError:
                _LOG.error("the engine has not ended %.0f s after it was told to, killing it", self._exit_seconds)
                process.kill()
                await process.wait()
        # One that was killed has left them.
        for path in (self._place.local, self._place.http):
            path.unlink(missing_ok=True)
        self._client.close()

    async def is_ready(self) -> bool:
        """Whether the engine serves all that it should"""
        try:
            return await self._client.async_is_server_ready(deadline=_ANSWER_SECONDS)
        except KushiError:
            return False

    async def _keep(self, process: Process) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            self._serves_since = math.inf
            what = await self._until_it_fails(process)
            self._let_go()
            served = time.monotonic() - self._serves_since
            self._keep_trying = self._keep_trying or served > 0
            if not self._keep_trying:
                _LOG.error("the engine %s before it served, see its log above: so does this process", what)
                logging.shutdown()
                os._exit(1)
            if served > _LONGEST_PAUSE_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            started = None
            while started is None:
                _LOG.error("the engine %s: it is started again in %.1f s", what, pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                try:
                    started = await self._spawn()
                except OSError as error:
                    what = f"cannot be started, {error}"
            process = started

    async def _until_it_fails(self, process: Process) -> str:
        ends = asyncio.create_task(process.wait())
        silent = asyncio.create_task(self._until_it_is_silent())
        try:
            await asyncio.wait((silent, ends), return_when=asyncio.FIRST_COMPLETED)
        finally:
            silent.cancel()
        if ends.done():
            return f"has ended with exit code {ends.result()}"
        process.kill()
        await ends
        return "stood still and was killed"

    async def _until_it_is_silent(self) -> None:
        # Loading may take any time.
        while not await self._answers():
            await asyncio.sleep(_LOOK_SECONDS / 2)
        self._serves_since = time.monotonic()
        silences = 0
        while silences < _MOST_SILENCES:
            await asyncio.sleep(_LOOK_SECONDS)
            silences = 0 if await self._answers() else silences + 1

    async def _answers(self) -> bool:
        try:
            return await self._client.async_is_server_live(deadline=_ANSWER_SECONDS)
        except KushiError:
            return False

    def _end_predecessor(self) -> None:
        """That of a worker that was killed ends by itself, unless it stands still"""
        try:
            probe_unix(str(self._place.local))
        except ConfigInvalid:
            for pid in _processes_with(self._word):
                with contextlib.suppress(OSError), handle_on(pid) as handle:
                    # Found once more, the handle is on that process and none that has its number now.
                    if handle is None or pid not in _processes_with(self._word):
                        continue
                    if not select.select([handle], [], [], _GRACE_SECONDS)[0]:
                        _LOG.error("the engine of before stands still: process %d is killed", pid)
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                        select.select([handle], [], [], _GRACE_SECONDS)

    async def _spawn(self) -> Process:
        _keep_what_is_open()
        theirs, ours = os.pipe()
        command = [sys.executable, "-m", _PACKAGE, "serve", *self._flags]
        command += [self._word, f"--http-socket={self._place.http}"]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                f"--drain-fd={theirs}",
                stdin=DEVNULL,
                pass_fds=(theirs,),
                env=environment_of_child(_ROOT),
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._lifeline = ours
        return self._process

    def _let_go(self) -> None:
        if self._lifeline is not None:
            with contextlib.suppress(OSError):
                os.write(self._lifeline, b"\0")
            os.close(self._lifeline)
        self._lifeline = self._process = None


def _keep_what_is_open() -> None:
    """Uvloop closes nothing in a child, and an engine that outlives this process would hold the port of the service"""
    for path in Path("/proc/self/fd").iterdir():
        # That of the directory itself is gone.
        with contextlib.suppress(OSError):
            if int(path.name) > _STANDARD_ERROR:
                os.set_inheritable(int(path.name), False)  # noqa: FBT003 - positional only


def _processes_with(word: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
