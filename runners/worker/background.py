"""The event loop of a model's coroutines: one for the process, in a thread of its own, until the model is finalized"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import TimeoutError as NotYet  # before Python 3.11 another one than the builtin
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Coroutine

__all__ = ["Background"]


class Background:
    """Starts with the first coroutine"""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ending = False
        # nothing else may hold a coroutine that waits, so it would be collected in the midst
        self._running: set[concurrent.futures.Future[Any]] = set()

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Run a coroutine beside those that run already"""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="kushi-coroutines", daemon=True)
            self._thread.start()
        running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return running

    def end(self, patience: float | None = None) -> None:
        """Cancel what still runs, and close the loop. What has not ended by then is left alone"""
        if self._loop is None or self._thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(patience)
        except NotYet:
            self._loop = None
            return
        self._ending = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop, self._ending = None, False

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._ending:
            # either in a task of the model's leaves the loop, with all the others in it
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
