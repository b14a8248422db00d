"""
The protocol's routes on the Bento's own port: /v2/* goes to the engine's HTTP and back, unread.

Heads and bodies are streamed both ways. A side that does not read stops the other. A client that goes away frees its
place in the queue; an engine that is dead or stands still makes a 503.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from ..told import ABSENT
from .lingering import Lingering
from .upstream import Upstreams

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..web.asgi import Receive, Scope, Send
    from .upstream import Header, Upstream
    from .watch import Watch

__all__ = ["Relay", "refuse"]

_HOP_BY_HOP: Final = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"expect"),
    )
)
# uvicorn adds its own
_OWN: Final = frozenset((b"date",))


class Relay:
    """An ASGI application in front of one engine"""

    def __init__(self, upstreams: Upstreams, watch: Watch) -> None:
        self._upstreams = upstreams
        self._watch = watch
        self._lingering = Lingering()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            upstream = self._upstreams.idle() or await self._open()
        except OSError:
            return await refuse(send, HTTPStatus.SERVICE_UNAVAILABLE, ABSENT)
        try:
            exchange = _Exchange(upstream, receive, send, self._watch)
            self._lingering.add(exchange)
            try:
                await exchange.run(scope)
            finally:
                self._lingering.discard(exchange)
                exchange.end()
        finally:
            self._upstreams.give_back(upstream)
        return None

    async def _open(self) -> Upstream:
        limit = asyncio.timeout(self._upstreams.patience)
        opening = _Opening(limit, self._watch)
        self._lingering.add(opening)
        try:
            async with limit:
                return await self._upstreams.open()
        finally:
            self._lingering.discard(opening)
            opening.end()


class _Opening:
    """A new connection that takes long is given up when the engine stands still"""

    def __init__(self, limit: asyncio.Timeout, watch: Watch) -> None:
        self._limit = limit
        self._watch = watch
        self._watcher: asyncio.Task[None] | None = None

    def linger(self) -> None:
        self._watcher = asyncio.create_task(self._until_silent())

    async def _until_silent(self) -> None:
        await self._watch.until_silent()
        self._limit.reschedule(asyncio.get_running_loop().time())

    def end(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()


class _Exchange:
    def __init__(self, upstream: Upstream, receive: Receive, send: Send, watch: Watch) -> None:
        self._upstream = upstream
        self._watch = watch
        self._receive = receive
        self._send = send
        self._sent_all = False
        self._watched = False
        self._client_gone = False
        self._watchers: list[asyncio.Task[None]] = []

    async def run(self, scope: Scope) -> None:
        """Until the answer has gone to the client, or nobody waits for it any more"""
        await self._ask(scope)
        upstream, answered = self._upstream, False
        while not self._client_gone:
            await upstream.changed()
            if not answered and upstream.status:
                answered = True
                headers = [header for header in _passed_on(upstream.headers) if header[0] not in _OWN]
                await self._send({"type": "http.response.start", "status": upstream.status, "headers": headers})
            done = upstream.complete
            if answered:
                await self._send({"type": "http.response.body", "body": upstream.take(), "more_body": not done})
            if done:
                return
            if upstream.lost and not self._client_gone:
                if answered:
                    # Less than was announced: uvicorn ends the connection, and the client knows.
                    raise ConnectionResetError("the engine went away within an answer")
                await refuse(self._send, HTTPStatus.SERVICE_UNAVAILABLE, ABSENT)
                return

    async def _ask(self, scope: Scope) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._give_up()
            return
        # What frames the body is looked for in what is passed on: a client may have named it in its Connection.
        headers = list(_passed_on(scope["headers"]))
        first = message.get("body", b"")
        # Whether it came in one piece or not: a body that nothing frames would be the next request.
        has_body = bool(first) or message.get("more_body", False)
        chunked = has_body and not any(name == b"content-length" for name, _ in headers)
        path = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        head = [scope["method"].encode(), b" ", path, b" HTTP/1.1\r\n"]
        for name, value in headers:
            head += (name, b": ", value, b"\r\n")
        head.append(b"transfer-encoding: chunked\r\n\r\n" if chunked else b"\r\n")
        head += _chunk(first) if chunked else (first,)
        self._upstream.begin(b"".join(head), bodiless=scope["method"] == "HEAD")
        while message.get("more_body", False):
            await self._upstream.room()
            if self._upstream.status or self._upstream.lost:
                # It has answered without hearing all; what is not sent leaves the connection of no use.
                return
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._give_up()
                return
            piece = message.get("body", b"")
            self._upstream.write(b"".join(_chunk(piece)) if chunked else piece)
        if chunked:
            self._upstream.write(b"0\r\n\r\n")
        self._sent_all = True
        self._watch_client()

    def linger(self) -> None:
        """What takes long is watched: for a client that goes away, and for an engine that stands still"""
        self._watched = True
        self._watchers.append(asyncio.create_task(self._until_silent()))
        self._watch_client()

    def _watch_client(self) -> None:
        # While the client is read, its end is noticed there.
        if self._watched and self._sent_all:
            self._watchers.append(asyncio.create_task(self._until_disconnected()))

    async def _until_silent(self) -> None:
        await self._watch.until_silent()
        self._upstream.close()

    async def _until_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._give_up()

    def _give_up(self) -> None:
        self._client_gone = True
        self._upstream.close()
        self._upstream.wake()

    def end(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        if not self._sent_all:
            self._upstream.close()


def _passed_on(headers: list[Header]) -> Iterable[Header]:
    named = b",".join(value for name, value in headers if name == b"connection").lower()
    dropped = _HOP_BY_HOP | {name.strip() for name in named.split(b",")} if named else _HOP_BY_HOP
    return (header for header in headers if header[0] not in dropped)


def _chunk(piece: bytes) -> tuple[bytes, ...]:
    return (b"%x\r\n" % len(piece), piece, b"\r\n") if piece else ()


async def refuse(send: Send, status: int, text: str) -> None:
    """Answers an error as the protocol has it"""
    body = json.dumps({"error": text}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
