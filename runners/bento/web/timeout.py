"""The end of a request that takes too long, or that nobody waits for any more"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from .refusal import refuse

if TYPE_CHECKING:
    from asyncio import Task, TimerHandle
    from collections.abc import Collection

    from .asgi import Application, Message, Receive, Scope, Send

__all__ = ["CLIENT_GONE", "Timeout"]

# What nginx calls it. Nobody receives it: it is for the access log and the metrics.
CLIENT_GONE: Final = 499
# A quick request pays nothing for being watched.
_WATCHED_AFTER_SECONDS: Final = 0.05


class Timeout:
    """
    In the place of BentoML's middleware, which leaves its timer behind after each request, with all that hangs on it:
    what the garbage collector has to look through then is what the slowest requests wait for.

    watched: the paths whose requests are cancelled too when the client goes away, so that their places in the queues
        of the engine are free. Those that run in a thread are none of them: a thread goes on, and its place was given
        to another one.
    """

    def __init__(self, app: Application, timeout: float, watched: Collection[str] = ()) -> None:
        self._app = app
        self._timeout = timeout
        self._watched = frozenset(watched)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            return await self._app(scope, receive, send)
        running = _Running(receive, send, self._timeout)
        try:
            if scope["type"] == "http" and scope["path"] in self._watched:
                await self._app(scope, running.receive, running.send)
            else:
                await self._app(scope, receive, running.send)
        except asyncio.CancelledError:
            if running.ending is None:
                raise
            await refuse(send, *running.ending)
        finally:
            running.end()
        return None


class _Running:
    """One request, from its first step to its last. Once its answer has begun, nothing here ends it"""

    def __init__(self, receive: Receive, send: Send, timeout: float) -> None:
        self._receive = receive
        self._send = send
        self._timeout = timeout
        self._task = cast("Task[None]", asyncio.current_task())
        self._loop = asyncio.get_running_loop()
        self._first = min(timeout, _WATCHED_AFTER_SECONDS)
        self._timer: TimerHandle = self._loop.call_later(self._first, self._takes_long)
        self._long = self._read = self._begun = False
        self._watcher: Task[None] | None = None
        self.ending: tuple[int, str] | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._read = True
            self._watch()
        return message

    async def send(self, message: Message) -> None:
        self._begun = True
        if self._watcher is not None:
            self._watcher.cancel()
        await self._send(message)

    def _takes_long(self) -> None:
        self._long = True
        self._timer = self._loop.call_later(self._timeout - self._first, self._expire)
        self._watch()

    def _watch(self) -> None:
        # While the client is read, its end is noticed there.
        if self._long and self._read and not self._begun and self._watcher is None:
            self._watcher = self._loop.create_task(self._until_disconnected())

    async def _until_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel(CLIENT_GONE, "the client has gone")

    def _expire(self) -> None:
        self._cancel(504, f"Not able to process the request in {self._timeout} seconds")

    def _cancel(self, status: int, text: str) -> None:
        if not self._begun and self.ending is None:
            self.ending = status, text
            self._task.cancel()

    def end(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self.ending is not None:
            self._task.uncancel()
