"""
One request and its answer, in the place of uvicorn's. What differs:

* Head and body of an answer are one write: two would be two packets for the client to wake up for.
* An answer that comes before the end of the body goes out at once, and is the last of its connection.
* HTTP/1.0 gets no chunks: the end of the connection is the end of the answer. One that is not whole ends with a reset,
  also when this process dies.
* A body that stops, or is no HTTP, is an exception of `receive` with the status that the client gets.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from ..relay.exchange import BrokenAnswer
from .bodies import GIVE_UP_BODY
from .refusal import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .asgi import Message, Receive, Scope, Send
    from .crowd import Complaints

__all__ = ["Cycle"]

# Of a longer body, the copy costs as much as the write that it saves.
_MOST_JOINED_BYTES: Final = 64 * 1024
_BODILESS: Final = frozenset({204, 304})
_END: Final = b"\r\n"


class Cycle(RequestResponseCycle):
    """As long as its request is served"""

    body: bytes | bytearray  # type: ignore[assignment] # one piece is not copied
    fault: tuple[int, str] | None = None
    """Why there will be no more of the body"""
    broken_answers: Complaints
    _until_close = False
    _held: bytes | None = None

    def fail(self, status: int, text: str) -> None:
        """There will be no more of the body"""
        self.fault = (status, text)
        self.message_event.set()

    def give_up(self, status: int, text: str) -> None:
        """The rest of the body is not waited for, if any is missing"""
        if self.more_body:
            self.fail(status, text)

    def cut(self) -> None:
        """Ends the connection within the answer, so that the client sees that it is not whole"""
        self.disconnect()
        if self._until_close:
            # Over TLS another end would be an announced one.
            self.transport.abort()
        else:
            self.transport.close()

    def abort(self) -> None:
        """Ends the connection, whatever the client has not read of the answer"""
        if self._until_close:
            self._end_with_reset(is_wanted=True)
        self.transport.abort()

    def _end_with_reset(self, *, is_wanted: bool) -> None:
        """However the connection ends from now on"""
        client = self.transport.get_extra_info("socket")
        # It may have ended already.
        with contextlib.suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", is_wanted, 0))

    def disconnect(self) -> None:
        self.disconnected = True
        self.message_event.set()

    async def run_asgi(self, app: Any) -> None:  # noqa: ANN401 - an ASGI application
        async def answering(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, receive, send)
            except BrokenAnswer as error:
                self.broken_answers.say(str(error), asyncio.get_running_loop().time())
                self.cut()
            except HTTPException as error:
                if self.fault is None:
                    raise
                if self.response_started:
                    self.cut()
                else:
                    await refuse(send, error.status_code, error.detail)
            finally:
                if self._until_close and not self.response_complete:
                    self.transport.abort()

        application: Any = answering
        if not self.more_body:
            return await super().run_asgi(application)
        extensions: Any = {GIVE_UP_BODY: self.give_up}
        self.scope["extensions"] = extensions
        try:
            await super().run_asgi(application)
        finally:
            # It leads back here, and the garbage collector would have to find that out.
            del self.scope["extensions"]
        return None

    async def receive(self) -> Any:  # noqa: ANN401 - a message of ASGI
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not (self.disconnected or self.response_complete or self.fault):
            self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.fault:
            raise HTTPException(*self.fault)
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        return {"type": "http.request", "body": bytes(body), "more_body": self.more_body}

    async def send(self, message: Message) -> None:  # type: ignore[override] # all messages have one type here
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            # an application that waits for nothing else would keep all others waiting, and hear of nothing
            await asyncio.sleep(0)
            return
        if not self.response_started:
            self._begin(message)
        elif not self.response_complete:
            self._go_on(message)
        else:
            raise RuntimeError(f"the application sent '{message['type']}' after the end of its answer")

    def _begin(self, message: Message) -> None:
        if message["type"] != "http.response.start":
            raise RuntimeError(f"the application sent '{message['type']}', expected 'http.response.start'")
        status = message["status"]
        lines, length, is_chunked, closes = self._lines(message.get("headers", ()))
        self.response_started = True
        self.waiting_for_100_continue = False
        has_body = self.scope["method"] != "HEAD" and status not in _BODILESS
        if has_body and length is None and not is_chunked:
            self._until_close = self._is_old
            is_chunked = not self._is_old
            if is_chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self._end_with_reset(is_wanted=True)
        if closes or self.more_body or self._until_close:
            self.keep_alive = False
        if not (self.keep_alive or closes):
            lines.append(b"connection: close\r\n")
        self.chunked_encoding = is_chunked
        self.expected_content_length = length if has_body and length else 0
        head = b"".join([STATUS_LINE[status], *lines, _END])
        # One whose length nobody knows is a stream, of which the client shall see the head before there is more.
        if length is None:
            self.transport.write(head)
        else:
            self._held = head

    def _lines(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[list[bytes], int | None, bool, bool]:
        """Those of the head, the length of the body, whether it comes in chunks, and whether the connection closes"""
        length: int | None = None
        is_chunked = closes = False
        lines = [piece for name, value in self.default_headers for piece in (name, b": ", value, _END)]
        for given, value in headers:
            if HEADER_RE.search(given):
                raise RuntimeError(f"a header of the answer has the name {given!r}, which HTTP does not allow")
            if HEADER_VALUE_RE.search(value):
                raise RuntimeError(f"the header {given!r} of the answer has a value that HTTP does not allow")
            name = given.lower()
            if name == b"content-length":
                length = int(value)
            elif name == b"transfer-encoding":
                if self._is_old:
                    continue
                is_chunked = value.lower() == b"chunked"
            elif name == b"connection":
                closes = b"close" in [token.strip() for token in value.lower().split(b",")]
            lines += (name, b": ", value, _END)
        return lines, length, is_chunked, closes

    @property
    def _is_old(self) -> bool:
        return self.scope["http_version"] == "1.0"

    def _go_on(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            raise RuntimeError(f"the application sent '{message['type']}', expected 'http.response.body'")
        body = message.get("body", b"")
        is_last = not message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            body = b""
        elif self.chunked_encoding:
            pieces = [b"%x\r\n" % len(body), body, _END] if body else []
            if is_last:
                pieces.append(b"0\r\n\r\n")
            body = b"".join(pieces)
        elif not self._until_close:
            if len(body) > self.expected_content_length:
                raise RuntimeError("the body of the answer is longer than its content-length")
            self.expected_content_length -= len(body)
        self._write(body)
        if is_last:
            if self.expected_content_length:
                raise RuntimeError("the body of the answer is shorter than its content-length")
            self.response_complete = True
            if self._until_close:
                self._end_with_reset(is_wanted=False)
            self.message_event.set()
            self.on_response()

    def _write(self, body: bytes) -> None:
        head, self._held = self._held, None
        if head is None:
            if body:
                self.transport.write(body)
        elif len(body) <= _MOST_JOINED_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)
