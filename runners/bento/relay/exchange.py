"""
The protocol's routes on the Bento's own port: /v2/* goes to the engine's HTTP and back, unread.

Connections and framing are native (`kushi_native.Upstream`); this is how an ASGI server is asked and answered. Bodies
are streamed both ways, and a side that does not read stops the other; how long a client may take for either is measured
at its connection. A client that goes away frees its place in the queue; an engine that is dead or stands still makes a
503.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from kushi_native import Upstream
from starlette.exceptions import HTTPException

from ..error_text import ABSENT
from ..web.refusal import refuse
from .connect import connected
from .shortcut import EXCHANGE, Shortcut
from .slow_requests import SlowRequests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kushi_native import Exchange

    from ..web.asgi import Message, Receive, Scope, Send
    from .origin import Origin
    from .watch import Watch

__all__ = ["BrokenAnswer", "Relay"]

# Some servers close a connection that was idle for five seconds: a request that crosses such an end is lost.
_IDLE_SECONDS: Final = 4.0
_CONNECT_SECONDS: Final = 0.75
# Of many that shake hands at once, each waits for all before it.
_HANDSHAKE_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 0.01
_SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))

_Answer = tuple[int, list[tuple[bytes, bytes]], bytes, bool]


class BrokenAnswer(ConnectionResetError):
    """Raised by an application whose answer has begun and cannot be ended: the client must see that it is not whole"""


class Relay:
    """An ASGI application in front of one engine; it belongs to the event loop on which it was made"""

    def __init__(self, origin: Origin, watch: Watch, files: Mapping[str, str | None] | None = None) -> None:
        """files: those of TLS, as a Client takes them"""
        files = files or {}
        certificate, key = files.get("client_cert"), files.get("client_key")
        upstream = Upstream(
            None if isinstance(origin.address, tuple) else origin.address,
            host=origin.host,
            prefix=origin.prefix.decode(),
            tls=origin.address[0] if origin.secure and isinstance(origin.address, tuple) else None,
            ca_cert=files.get("ca_cert"),
            client_cert=(certificate, key) if certificate and key else None,
            idle_seconds=_IDLE_SECONDS,
        )
        self._engine = _Engine(origin, upstream, watch)
        self._slow_requests = SlowRequests()
        self.shortcut = Shortcut(upstream, self._slow_requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _RelayedRequest(self._engine, scope, receive, send)
        self._slow_requests.add(request)
        try:
            await request.run()
        finally:
            self._slow_requests.discard(request)
            request.end()

    def close(self) -> None:
        """Closes the connections that are idle; those in use close with their exchanges"""
        self._engine.upstream.close()


@dataclass(frozen=True, slots=True)
class _Engine:
    origin: Origin
    upstream: Upstream
    watch: Watch


class _RelayedRequest:
    """One request on its way, and its answer"""

    _exchange: Exchange | None = None
    # On what is awaited before there is an exchange.
    _limit: asyncio.Timeout | None = None
    _feeder: asyncio.Task[None] | None = None
    _watcher: asyncio.Task[None] | None = None
    _until_gone: asyncio.Task[None] | None = None
    _handshake: asyncio.TimerHandle | None = None
    # Pieces of the body have gone that nobody has any more.
    _fed = False
    _read_all = False
    _is_slow = False
    _client_gone = False
    # What the connection has found wrong with the body, with the answer to it.
    _fault: HTTPException | None = None
    _engine_is_silent = False

    def __init__(self, engine: _Engine, scope: Scope, receive: Receive, send: Send) -> None:
        self._engine = engine
        self._scope = scope
        self._receive = receive
        self._send = send
        self._exchange = scope.get("extensions", {}).get(EXCHANGE, {}).get("exchange")

    async def run(self) -> None:
        """Until the answer has gone to the client, or nobody waits for it any more"""
        first = await self._first()
        if first is not None and first["type"] == "http.disconnect":
            return None
        try:
            status, headers, body, more = await self._answer(b"" if first is None else first.get("body", b""))
        except ValueError as error:
            # No engine would take it.
            status, text = error.args
            return await refuse(self._send, status, text, closes=not self._read_all)
        except OSError:
            return await self._refuse_unanswered()
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        if more:
            await self._stream(body)
        else:
            await self._send({"type": "http.response.body", "body": body})
        return None

    async def _stream(self, body: bytes) -> None:
        """The answer's body as it comes"""
        more = True
        while True:
            await self._send({"type": "http.response.body", "body": body, "more_body": more})
            if not more or self._exchange is None:
                return
            try:
                body, more = await self._exchange.more()
            except OSError as error:
                if self._client_gone:
                    return
                raise self._fault or BrokenAnswer("the engine went away within an answer") from error

    async def _first(self) -> Message | None:
        """What comes of the body first; None where that is late, so that the head goes alone"""
        self._limit = asyncio.timeout(None)
        try:
            async with self._limit:
                first = await self._receive()
        except TimeoutError:
            return None
        finally:
            self._limit = None
        self._read_all = not first.get("more_body", False)
        return first

    async def _answer(self, body: bytes) -> _Answer:
        """Asks the engine, and once more where the connection had ended and it has heard nothing"""
        fresh, begun = False, self._exchange
        while True:
            exchange = self._exchange = begun or await self._begin(body, fresh=fresh)
            if self._engine_is_silent:
                raise ConnectionError
            if not self._read_all and self._feeder is None:
                self._feeder = asyncio.create_task(self._feed())
            self._watch_client()
            try:
                return await exchange.answer()
            except (BrokenPipeError, ConnectionAbortedError) as error:
                safe = isinstance(error, BrokenPipeError) or self._scope["method"] in _SAFE
                if self._fed or not (safe and exchange.was_kept):
                    raise
            fresh, begun = True, None

    async def _begin(self, body: bytes, *, fresh: bool) -> Exchange:
        exchange = self._ask(body, fresh=fresh)
        if exchange is not None:
            return exchange
        self._limit = asyncio.timeout(_CONNECT_SECONDS)
        try:
            async with self._limit:
                while exchange is None:
                    if isinstance(self._engine.origin.address, tuple):
                        connection = await connected(self._engine.origin.address)
                        exchange = self._ask(body, connection.detach())
                    else:
                        await asyncio.sleep(_AGAIN_SECONDS)
                        exchange = self._ask(body, fresh=fresh)
        finally:
            self._limit = None
        return exchange

    def _ask(self, body: bytes, socket: int | None = None, *, fresh: bool = False) -> Exchange | None:
        """None where there is no connection: the engine is on another host, or takes none for now"""
        scope = self._scope
        target = scope["raw_path"], scope["query_string"]
        try:
            return self._engine.upstream.ask(
                scope["method"], target, scope["headers"], body, not self._read_all, fresh=fresh, socket=socket
            )
        except BlockingIOError:
            return None

    async def _feed(self) -> None:
        """Passes the rest of the body on"""
        while not self._read_all:
            try:
                message = await self._receive()
            except HTTPException as fault:
                self._fault = fault
                return self._close()
            if message["type"] == "http.disconnect":
                return self._give_up()
            self._fed = True
            self._read_all = not message.get("more_body", False)
            if self._exchange is not None:
                room = self._exchange.push(message.get("body", b""), not self._read_all)
                if room is not None:
                    await room
        return self._watch_client()

    def became_slow(self) -> None:
        """What takes long is watched: for a client that goes away, and for an engine that stands still"""
        self._is_slow = True
        self._watcher = asyncio.create_task(self._until_silent())
        if self._engine.origin.secure:
            loop = asyncio.get_running_loop()
            self._handshake = loop.call_later(_HANDSHAKE_SECONDS, self._end_handshake)
        if self._exchange is None:
            # Should the body be what is awaited, the head goes alone.
            if not self._read_all:
                self._end_limit()
        else:
            self._watch_client()

    def _watch_client(self) -> None:
        # While the client is read, its end is noticed there.
        if self._is_slow and self._read_all and self._until_gone is None:
            self._until_gone = asyncio.create_task(self._until_disconnected())

    async def _until_silent(self) -> None:
        await self._engine.watch.until_silent()
        self._engine_is_silent = True
        self._end_limit()
        self._close()

    def _end_handshake(self) -> None:
        if self._exchange is not None and not self._exchange.is_open:
            self._close()

    async def _until_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._give_up()

    def _give_up(self) -> None:
        self._client_gone = True
        self._close()

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    def _close(self) -> None:
        if self._exchange is not None:
            self._exchange.close()

    async def _refuse_unanswered(self) -> None:
        if self._client_gone:
            return
        if self._fault is not None:
            raise self._fault
        await refuse(self._send, HTTPStatus.SERVICE_UNAVAILABLE, ABSENT)

    def end(self) -> None:
        """Nobody waits any more"""
        for left in (self._feeder, self._watcher, self._until_gone, self._handshake):
            if left is not None:
                left.cancel()
        self._close()
