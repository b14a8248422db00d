"""
One HTTP connection of a worker, in the place of uvicorn's. What differs:

* Whatever upgrade a client offers, other than a WebSocket, is as if it had not been offered.
* The headers of a request are those of its head; what follows a chunked body is none of them.
* Heads, chunks and waiting requests have bounds, and all that is awaited from the client has its time: see overdue.py.
* A connection on which the client may still send is not reset: what it sends is read for a while and thrown away.
* An ordinary request for the engine takes the shortcut, unless something of the connection is not ordinary either.
* A connection that speaks gRPC is the engine's.
* No request is read behind one after which the connection closes, and a fault never stands in the place of an answer.

All runs on the event loop. What is used of uvicorn beyond its documentation is used here, in cycle.py, websocket.py and
server.py.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ..relay.shortcut import EXCHANGE
from .cycle import Cycle
from .handover import BEGINNING
from .no_room import FULL, no_room, tells_of_health
from .ordinary import OrdinaryRequests
from .overdue import Overdue
from .refusal import refusal

if TYPE_CHECKING:
    from collections import deque

    from uvicorn import Config
    from uvicorn.server import ServerState

    from .crowd import Crowd
    from .ways import Ways

__all__ = ["Connection"]


class _Stopped(Exception):
    """Raised in the parser: nothing more of this connection is read"""


class Connection(HttpToolsProtocol):
    """From the client's connect to its end, or to the WebSocket that it becomes"""

    cycle: Cycle | None  # type: ignore[assignment]
    """The newest request"""
    pipeline: deque[tuple[Cycle, Any]]  # type: ignore[assignment]
    """Requests that wait, the newest one first"""

    def __init__(
        self,
        crowd: Crowd,
        ways: Ways,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._crowd = crowd
        self.limits = crowd.limits
        self._patience = Overdue(crowd)
        self.running: Cycle | None = None
        self._ordinary = OrdinaryRequests(self, None if self.root_path else ways.shortcut())
        self._handover = ways.handover()
        self._is_fresh = True
        # the first bytes, where they may be the beginning of more than one protocol
        self._held = b""
        self._has_room = True
        self._is_silent = False
        # of the request that is being read
        self.in_head = self._in_body = False
        self._head_bytes = self._headers = self._chunks = 0
        self._takes_other_bytes = False
        # since the connection was made, and when there was last a head or a body among them
        self.received = self._understood = 0
        # Nothing is read any more; or it is, and thrown away.
        self._is_deaf = False
        self._refusal: tuple[int, str] | None = None

    # --- the transport ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        super().connection_made(transport)
        self._has_room = self._crowd.enter(self)
        self._rest()
        if self._crowd.ends:
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.wake(self)
        self._ordinary.end()
        for cycle in self._unanswered():
            cycle.disconnect()
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_silent:
            self._is_silent = False
            self._crowd.wake(self)
            self._patience.moved = True
            if self._is_fresh and self._handover is not None:
                data = self._held + data
                if self._is_for_the_engine(data):
                    return
            if self._ordinary.begin(data):
                return
        elif self._ordinary.is_under_way and self._ordinary.go_on(data):
            return
        if self._is_deaf:
            # Who does not read an answer is not excused by what it sends.
            self._patience.moved |= self._patience.is_draining
            return
        self.read(data)

    def read(self, data: bytes) -> None:
        self.received += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            if not self._is_deaf:
                self.refuse(*(self._refusal or (400, "the request is no HTTP/1.1")))
        else:
            if self.received - self._understood > self.limits.max_head_bytes and not self._is_deaf:
                self.refuse(431, self.limits.too_large_head)

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                return self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                if self._is_deaf:
                    return None
                if self.scope["method"] == "CONNECT":
                    return self.refuse(405, "the method CONNECT is not served")
                if self._asks_for_websocket():
                    return self._become_websocket(data)
                head = self._head(without=b"upgrade")
                self._new_parser()
                self.parser.feed_data(head)
                if not data:
                    return None

    def _new_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    # --- ways to the engine ---

    def _is_for_the_engine(self, data: bytes) -> bool:
        """Whether it speaks gRPC: then it is handed over. What is too short to know is held until more comes"""
        self._held = b""
        if not (data.startswith(BEGINNING) or BEGINNING.startswith(data)):
            return False
        if len(data) < len(BEGINNING):
            self._held = data
            self._rest()
        elif self.transport.get_extra_info("sslcontext") is not None or self._handover is None:
            return False
        else:
            self._handover.begin(self.transport, data, self._crowd.complaints)
        return True

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        return self.server_state.default_headers

    def is_ordinary(self) -> bool:
        return self._has_room and not (self._is_deaf or self._crowd.ends or self.flow.write_paused)

    def write_answer(self, data: bytes) -> None:
        self._is_fresh = False
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.transport.write(data)
            self._rest()

    # --- what the parser has found ---

    def on_message_begin(self) -> None:
        # Of what stands behind the last request nothing is answered.
        if self.cycle is not None and not self.cycle.keep_alive:
            self._is_deaf = True
            raise _Stopped
        super().on_message_begin()
        self.in_head = True
        self._head_bytes = self._headers = self._chunks = 0
        self._understood = self.received
        self._patience.moved = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        self._head_bytes += len(name) + len(value)
        if self._headers > self.limits.max_headers or self._head_bytes > self.limits.max_head_bytes:
            self._refusal = (431, self.limits.too_large_head)
            raise _Stopped
        if self.in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                self._refusal = (400, "a request body may be chunked, no other Transfer-Encoding is known")
                raise _Stopped
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self.parser
        self.in_head = False
        self._understood = self.received
        version = parser.get_http_version()
        method = parser.get_method().decode("ascii")
        scope = self.scope
        scope["method"] = method
        if version != "1.1":
            scope["http_version"] = version
        self._takes_other_bytes = parser.should_upgrade()
        if self._takes_other_bytes:
            # The parser stops here, and this request begins anew where it does.
            return
        self._in_body = True
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["raw_path"] = self.root_path.encode("ascii") + url.path
        scope["path"] = self.root_path + (urllib.parse.unquote(path) if "%" in path else path)
        scope["query_string"] = url.query or b""
        self._is_fresh = False
        exchange = self._ordinary.take_exchange()
        if exchange is not None:
            scope["extensions"] = {EXCHANGE: {"exchange": exchange}}
        cycle = self.cycle = Cycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive() and self._has_room and not self._crowd.ends,
            on_response=self.on_response_complete,
        )
        cycle.broken_answers = self._crowd.broken_answers
        self._patience.moved = True
        has_place = self._has_room or tells_of_health(scope["path"])
        app: Any = self.app if has_place else no_room
        if self.running is None:
            self._begin(cycle, app)
        else:
            self.pipeline.appendleft((cycle, app))
            if len(self.pipeline) >= self.limits.max_waiting_requests:
                cycle.keep_alive = False

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > self.limits.max_chunks:
            self._refusal = (400, self.limits.too_many_chunks)
            raise _Stopped

    def on_body(self, body: bytes) -> None:
        self._understood = self.received
        cycle = self.cycle
        if cycle is None or cycle.response_complete or self._takes_other_bytes:
            return
        if not cycle.body:
            cycle.body = body
        else:
            if isinstance(cycle.body, bytes):
                cycle.body = bytearray(cycle.body)
            cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._understood = self.received
        cycle = self.cycle
        if cycle is None or self._takes_other_bytes:
            return
        cycle.more_body = False
        cycle.message_event.set()

    # --- upgrades ---

    def _asks_for_websocket(self) -> bool:
        return (
            self.scope["method"] == "GET"
            and self.scope["http_version"] == "1.1"
            and self._get_upgrade() == b"websocket"
            and self._should_upgrade_to_ws()
        )

    def _head(self, *, without: bytes = b"") -> bytes:
        scope = self.scope
        lines = [scope["method"].encode(), b" ", self.url, b" HTTP/", scope["http_version"].encode(), b"\r\n"]
        for name, value in self.headers:
            if name != without:
                lines += (name, b": ", value, b"\r\n")
        return b"".join([*lines, b"\r\n"])

    def _become_websocket(self, data: bytes) -> None:
        said = dict(self.headers)
        if b"transfer-encoding" in said or said.get(b"content-length", b"0") != b"0":
            return self.refuse(400, "a request for a WebSocket has no body")
        if self.running is not None:
            return self.refuse(400, "a request for a WebSocket is the first that waits on its connection")
        if not self._has_room:
            return self.refuse(503, FULL)
        self._crowd.wake(self)
        self.connections.discard(self)
        made: Any = self.ws_protocol_class
        protocol = made(config=self.config, server_state=self.server_state, app_state=self.app_state)
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        protocol.data_received(self._head())
        if data:
            protocol.data_received(data)
        return None

    # --- answers ---

    def _begin(self, cycle: Cycle, app: Any) -> None:  # noqa: ANN401 - an ASGI application
        self.running = cycle
        self._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        cycle, self.running = self.running, None
        self._patience.moved = True
        if cycle is None or self.transport.is_closing():
            return
        if not cycle.keep_alive:
            self._close(drains=cycle.more_body or self._is_deaf or bool(self.pipeline))
        elif self.pipeline:
            following, app = self.pipeline.pop()
            self._begin(following, app)
        else:
            self.flow.resume_reading()
            if not self.in_head:
                self._rest()
            if self._crowd.ends:
                self.shutdown()

    def refuse(self, status: int, text: str) -> None:
        """Of what is wrong with the bytes. The fault of a later request never stands in the place of an answer"""
        self._is_deaf = True
        self._crowd.complaints.say(f"a client was refused: {text}", self.loop.time())
        if self.cycle is not None and self.running is not None:
            if self._in_body:
                self.cycle.fail(status, text)
            self.cycle.keep_alive = False
            return
        answer = refusal(status, text, closes=True)
        lines = [b"%s: %s\r\n" % header for header in answer.raw_headers]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", answer.body]))
        self._close(drains=True)

    def _close(self, *, drains: bool) -> None:
        """
        Behind the last answer. Where the client may still be sending, this end alone is closed at first: a reset would
        reach the client before the answer.
        """
        self._is_deaf = True
        if self.transport.is_closing():
            return
        if not drains:
            self.transport.close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._patience.drain(self.loop.time())

    # --- time ---

    @property
    def is_on_shortcut(self) -> bool:
        return self._ordinary.is_under_way

    @property
    def silent_seconds(self) -> float:
        return self.timeout_keep_alive if self._is_silent and not self._is_fresh else self.limits.head_seconds

    def look(self, now: float) -> None:
        self._patience.look(self, now)

    def shutdown(self) -> None:
        """The worker ends: what was accepted is answered, and what is on its way gets a moment to come"""
        self._patience.moved = True
        self._ordinary.take_over()
        if self.running is None:
            self.loop.call_later(self.limits.last_request_seconds, self._leave)
        elif self.cycle is not None and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def _leave(self) -> None:
        if self._is_silent and not self._is_deaf:
            self._close(drains=True)
            # Clients that keep connections for later do not look at them now.
            self.loop.call_later(self.limits.last_request_seconds, self.transport.close)

    def _rest(self) -> None:
        self._is_silent = True
        self._patience.moved = True
        self._crowd.rest(self, is_fresh=self._is_fresh)

    def _unanswered(self) -> list[Cycle]:
        waiting: list[Any] = [cycle for cycle, _ in self.pipeline]
        return waiting if self.running is None else [self.running, *waiting]
