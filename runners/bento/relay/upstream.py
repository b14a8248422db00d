"""A connection to the engine's HTTP socket, kept from one exchange to the next"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from httptools import HttpParserError, HttpResponseParser

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["Upstream", "Upstreams"]

_MOST_UNREAD_BYTES: Final = 256 * 1024
_MOST_IDLE: Final = 256
_CONNECT_SECONDS: Final = 0.75
# Of many that shake hands at once, each waits for all before it.
_HANDSHAKE_SECONDS: Final = 10
# Some servers close a connection that was idle for five seconds: a request that crosses such an end is lost.
_IDLE_SECONDS: Final = 4

Header = tuple[bytes, bytes]


class Upstream(asyncio.Protocol):
    """One exchange at a time: what is written goes out at once, the answer is taken as it comes"""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[Header] = []
        self.complete = True
        self.lost = False
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._keep = False
        self._bodiless = False
        self._body: list[bytes] = []
        self._unread = 0
        self._changed: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    def begin(self, head: bytes, *, bodiless: bool = False) -> None:
        """Sends the head of a request, and what of its body is there; the answer to HEAD is `bodiless`"""
        self.status, self.headers, self.complete, self._keep = 0, [], False, False
        self._bodiless = bodiless
        self.write(head)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self.lost:
            self._transport.write(data)

    async def room(self) -> None:
        """Comes back when the engine takes more"""
        if self._room is not None:
            await self._room

    async def changed(self) -> None:
        """Comes back when there is more of the answer, or will be no more"""
        if not (self.complete or self.lost or self._body):
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed

    def take(self) -> bytes:
        """What has come of the body since the last look"""
        if not self._body:
            return b""
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        if self._unread > _MOST_UNREAD_BYTES and self._transport is not None and not self.lost:
            self._transport.resume_reading()
        self._unread = 0
        return body

    @property
    def reusable(self) -> bool:
        return self.complete and self._keep and not self.lost

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            # What nobody has asked for, and what is no HTTP, ends the connection.
            self.lost = self.complete
            if not self.complete:
                self._parser.feed_data(data)
        except HttpParserError:
            self.lost = True
        if self.lost:
            self.close()
        self.wake()

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost = True
        self.resume_writing()
        self.wake()

    def pause_writing(self) -> None:
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    # --- HttpResponseParser ---

    def on_message_begin(self) -> None:
        self._check_asked()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        # The answer to HEAD may say how long a body would be, and the parser waits for that one.
        self._keep = self._parser.should_keep_alive() and not self._bodiless
        if self._bodiless:
            self.on_message_complete()

    def on_body(self, body: bytes) -> None:
        self._check_asked()
        self._body.append(body)
        self._unread += len(body)
        if self._unread > _MOST_UNREAD_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        # An interim answer is none yet.
        if self.status >= 200:
            self.complete = True
        else:
            self.status, self.headers = 0, []

    def _check_asked(self) -> None:
        """The parser makes an HttpParserError of it"""
        if self.complete:
            raise ValueError("more than the answer")


class Upstreams:
    """The connections to one engine"""

    def __init__(self, address: Path | tuple[str, int], tls: SSLContext | None = None) -> None:
        """address: the path of a socket, or a host and its port, where `tls` may be spoken"""
        self._address = address
        self._tls = tls
        self._idle: deque[tuple[float, Upstream]] = deque()

    def idle(self) -> Upstream | None:
        """The idle connection that was used last"""
        oldest = time.monotonic() - _IDLE_SECONDS
        while self._idle:
            since, upstream = self._idle.pop()
            if since > oldest and not upstream.lost:
                return upstream
            upstream.close()
        return None

    @property
    def patience(self) -> float:
        """How many seconds a new connection may take"""
        return _CONNECT_SECONDS if self._tls is None else _HANDSHAKE_SECONDS

    async def open(self) -> Upstream:
        """A new connection"""
        loop = asyncio.get_running_loop()
        if isinstance(self._address, Path):
            _, upstream = await loop.create_unix_connection(Upstream, str(self._address))
            return upstream
        _, upstream = await loop.create_connection(Upstream, *self._address, ssl=self._tls)
        return upstream

    def give_back(self, upstream: Upstream) -> None:
        """Closes what cannot be used again"""
        if upstream.reusable and len(self._idle) < _MOST_IDLE:
            self._idle.append((time.monotonic(), upstream))
        else:
            upstream.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()
