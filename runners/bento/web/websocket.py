"""
One WebSocket of a worker, in the place of uvicorn's. What differs:

* One message waits for the application at a time, and nothing is read while it waits, or while the client does not
  read what it is sent.
* A client that reads nothing is given up after its time, however the connection is closed.
* What is against the protocol is told so, with a code, before the end.
* Frames that bring next to nothing cost as much as others: a client may send some, and no stream of them.
* An application that takes its time is not a client that is silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.websockets.wsproto_impl import FrameTooLargeError, WSProtocol
from wsproto import events
from wsproto.connection import ConnectionState

from .crowd import Patience
from .no_room import no_room_for_websockets

if TYPE_CHECKING:
    import asyncio

    from uvicorn import Config
    from uvicorn.server import ServerState

    from .asgi import Message
    from .crowd import Crowd

__all__ = ["WebSocket"]

_AGAINST_THE_RULES: Final = 1008
_TOO_LARGE: Final = 1009
# Of a fragment, less than which is next to nothing: each costs as much as some hundred bytes.
_LEAST_BYTES: Final = 512


class WebSocket(WSProtocol):
    """From the handshake to its end"""

    def __init__(
        self,
        crowd: Crowd,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._crowd = crowd
        self._patience = Patience()
        self._is_asked = self._has_events = False
        # wsproto keeps nothing that comes along with the request.
        self._early = b""
        # of those that bring next to nothing, since the last look
        self._frames = 0
        self._is_ignored = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        super().connection_made(transport)
        if self._crowd.websockets >= self._crowd.limits.max_websockets:
            app: Any = no_room_for_websockets(self._crowd.limits.max_websockets)
            self.app = app
        self._crowd.websockets += 1
        self._read_or_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.websockets -= 1
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_asked and not self.handshake_complete:
            self._early += data
        elif not self._is_ignored:
            # At first this is the whole request.
            self._is_asked = True
            super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._patience.moved = True
        self._read_or_wait()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read_or_wait()

    def handle_events(self) -> None:
        self._has_events = False
        for event in self.conn.events():
            if isinstance(event, events.CloseConnection):
                self.handle_close(event)
            elif self.close_sent:
                continue
            elif isinstance(event, events.Request):
                self.handle_connect(event)
            elif isinstance(event, events.TextMessage | events.BytesMessage):
                self.handle_message(event)
                if not self.queue.empty():
                    self._has_events = True
                    break
                self._frames += len(event.data) < _LEAST_BYTES
            elif isinstance(event, events.Ping):
                self.handle_ping(event)
                self._frames += 1
            elif isinstance(event, events.Pong):
                self.handle_pong(event)
                self._frames += 1
            if self._frames > self._crowd.limits.max_empty_frames:
                self._refuse(_AGAINST_THE_RULES, "too many frames that bring no message")
                break

    def handle_close(self, event: events.CloseConnection) -> None:
        if self._is_ignored:
            return
        # The client has not closed: it has sent what is no frame.
        if self.conn.state is ConnectionState.OPEN and not self.close_sent:
            self._refuse(event.code, event.reason or "")
        else:
            super().handle_close(event)

    def handle_message(self, event: events.TextMessage | events.BytesMessage) -> None:
        try:
            self.buffer.extend(event)
        except FrameTooLargeError:
            self.buffer.clear()
            reason = f"a message is larger than the {self.config.ws_max_size} bytes that are accepted"
            self._close(_TOO_LARGE, reason)
            return
        if event.message_finished:
            self.queue.put_nowait(self.buffer.to_message())
            self.buffer.clear()
            self._read_or_wait()

    def _refuse(self, code: int, reason: str) -> None:
        """What the client has sent behind that is not read any more; it has some time to hear why"""
        self._is_ignored = True
        self.close_timeout = self._crowd.limits.draining_seconds
        self._close(code, reason)

    def _close(self, code: int, reason: str) -> None:
        """Reads on until the client has closed as well: a reset would reach it before the reason"""
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        if not self.transport.is_closing():
            self.transport.write(self.conn.send(events.CloseConnection(code=code, reason=reason)))
            self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)
            self._read_or_wait()

    async def receive(self) -> Any:  # noqa: ANN401 - a message of ASGI
        if self._has_events and self.queue.empty():
            self.handle_events()
            self._read_or_wait()
        message = await self.queue.get()
        self._read_or_wait()
        return message

    async def send(self, message: Message) -> None:  # type: ignore[override] # all messages have one type here
        await super().send(message)  # type: ignore[arg-type]
        if message["type"] == "websocket.accept":
            early, self._early = self._early, b""
            self.data_received(early)
        self._read_or_wait()

    def keepalive_timeout(self) -> None:
        if not self.read_paused:
            return super().keepalive_timeout()
        # What it has answered was not read.
        self.pong_timer = self.pending_ping_payload = None
        return self.schedule_ping()

    def look(self, now: float) -> None:
        """Ends what takes too long"""
        self._frames = 0
        if self.transport.is_closing() or not self.writable.is_set():
            self._patience.has_owed(self.transport.get_write_buffer_size())
        elif self.handshake_complete and not self.close_sent:
            self._patience.moved = True
        exit_is_over = self._crowd.has_ended_for(self._crowd.limits.exit_seconds, now)
        if self._patience.is_over(now, self._crowd.unread_seconds) or exit_is_over:
            self.transport.abort()

    def _read_or_wait(self) -> None:
        waits = self._has_events or not (self.queue.empty() and self.writable.is_set() and self.handshake_complete)
        if self.close_sent:
            waits = self._is_ignored
        if waits != self.read_paused and not self.transport.is_closing():
            self.read_paused = waits
            if waits:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
