"""
Ends a worker whose event loop serves nothing any more: BentoML starts another one.

A thread asks the loop through a socket, as clients do, and a task of the loop answers, once the application has
started: to start may take any time. An endpoint that computes on the loop is not asked to hurry: nobody waits for an
answer longer than the service's timeout, so the loop has twice that time, and 30 s at least. After SIGTERM it is 30 s,
whatever the timeout: BentoML waits for a day.

A worker whose supervisor has died ends, too: nobody would start it again, or end it.

What keeps all threads of Python from running keeps this one, too; then the worker that keeps the engine waits as long.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import math
import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import FrameType

__all__ = ["LEAST_SECONDS", "patience_for", "watched"]

LEAST_SECONDS: Final = 30
_LOG = logging.getLogger(__name__)
_ASK_SECONDS: Final = 0.5
_SAY_SECONDS: Final = 2.0
_QUESTION: Final = b"?"


def patience_for(timeout: float) -> int:
    """How long, in seconds, the loop of a service may be kept from all else; `timeout` is that of its requests"""
    return max(LEAST_SECONDS, math.ceil(2 * timeout))


@contextlib.asynccontextmanager
async def watched(patience: int) -> AsyncIterator[Callable[[], None]]:
    """
    Watches the loop of this process, which must be that of a server, to the end of the process; from when what it
    yields is called, or SIGTERM comes
    """
    handler = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        # a program of somebody else, such as a test
        yield lambda: None
        return
    watchdog = _Watchdog(patience)
    answering = asyncio.create_task(watchdog.answer())

    def end(number: int, frame: FrameType | None) -> Any:  # noqa: ANN401 - what signal.signal takes
        watchdog.end()
        return handler(number, frame)

    signal.signal(signal.SIGTERM, end)
    try:
        yield watchdog.begin
    finally:
        # The rest of the end is watched, too.
        watchdog.end()
        answering.cancel()


class _Watchdog:
    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._silent = 0
        self._parent = os.getppid()
        self._asking, self._answering = socket.socketpair()
        self._asking.settimeout(0)
        self._answering.settimeout(0)
        self._begun = False

    def begin(self) -> None:
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._ask, name="kushi-watchdog", daemon=True).start()

    def end(self) -> None:
        """From now on there is less time"""
        self._patience = LEAST_SECONDS
        self.begin()

    async def answer(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await loop.sock_recv(self._answering, 4096)
            self._silent = 0

    def _ask(self) -> None:
        # Counted, not measured: a process that was stopped as a whole could not answer either.
        while self._silent * _ASK_SECONDS < self._patience:
            with contextlib.suppress(BlockingIOError):
                self._asking.send(_QUESTION)
            self._silent += 1
            time.sleep(_ASK_SECONDS)
            if self._parent != (parent := os.getppid()):
                self._parent = parent
                os.kill(os.getpid(), signal.SIGTERM)
        saying = threading.Thread(target=self._say, daemon=True)
        saying.start()
        # A log that nobody takes, or whose lock is held, keeps nothing alive.
        saying.join(_SAY_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    def _say(self) -> None:
        faulthandler.dump_traceback()
        _LOG.error("the event loop has served nothing for %d s: this worker is killed", self._patience)
