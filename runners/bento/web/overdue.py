"""
What takes too long on one HTTP connection, and how it ends then: a head, a body, an answer that nobody reads, silence,
and at the end of the worker all of them sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .crowd import Patience

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.flow_control import FlowControl

    from .crowd import Crowd
    from .cycle import Cycle

__all__ = ["Overdue"]


class Client(Protocol):
    """The connection"""

    transport: asyncio.Transport
    flow: FlowControl
    cycle: Cycle | None
    """The newest request"""
    running: Cycle | None
    """The request that is being answered"""
    received: int
    """Bytes so far"""
    in_head: bool

    @property
    def is_on_shortcut(self) -> bool: ...

    @property
    def silent_seconds(self) -> float:
        """How long it may be there without a request"""

    def refuse(self, status: int, text: str) -> None: ...


class Overdue(Patience):
    """How long nothing has happened on it"""

    def __init__(self, crowd: Crowd) -> None:
        super().__init__()
        self._crowd = crowd
        self._limits = crowd.limits
        # of what was received, that which was progress of a body
        self._counted = 0
        self._drains_since: float | None = None

    @property
    def is_draining(self) -> bool:
        return self._drains_since is not None

    def drain(self, now: float) -> None:
        """What the client still sends is read for a while and thrown away"""
        self._drains_since = now
        self.moved = True

    def look(self, client: Client, now: float) -> None:
        """Ends what takes too long"""
        limits, cycle = self._limits, client.running
        exit_is_over = self._crowd.has_ended_for(limits.exit_seconds, now)
        if client.flow.write_paused or client.transport.is_closing():
            self._look_at_unread(client, now, exit_is_over=exit_is_over)
        elif self._drains_since is not None:
            if self.is_over(now, limits.draining_seconds) or now - self._drains_since > self._longest_drain(now):
                client.transport.close()
        elif exit_is_over and (cycle is None or cycle.response_started):
            end = client.transport.close if cycle is None else cycle.cut
            end()
        elif cycle is not None:
            # What waits behind it is not begun then.
            cycle.keep_alive = cycle.keep_alive and not exit_is_over
            self._look_at_body(client, cycle, now)
        elif client.in_head:
            if self.is_over(now, limits.head_seconds):
                client.refuse(408, "the head of the request did not arrive in time (KUSHI_HTTP_HEAD_TIMEOUT_SECS)")
        elif client.is_on_shortcut:
            self.moved = True
        elif self.is_over(now, client.silent_seconds):
            client.transport.close()

    def _longest_drain(self, now: float) -> float:
        if self._crowd.has_ended_for(self._limits.last_client_seconds, now):
            return self._limits.last_request_seconds
        return self._limits.draining_seconds if self._crowd.ends else self._limits.body_seconds

    def _look_at_unread(self, client: Client, now: float, *, exit_is_over: bool) -> None:
        self.has_owed(client.transport.get_write_buffer_size())
        if self.is_over(now, self._crowd.unread_seconds) or exit_is_over:
            (client.cycle or client.transport).abort()

    def _look_at_body(self, client: Client, cycle: Cycle, now: float) -> None:
        is_awaited = cycle.more_body and not (
            client.flow.read_paused or cycle.waiting_for_100_continue or cycle.fault or cycle.response_complete
        )
        if not is_awaited or client.received - self._counted >= self._limits.least_body_bytes:
            self.moved = True
        if self.moved:
            self._counted = client.received
        if self.is_over(now, self._limits.body_seconds):
            variables = "KUSHI_HTTP_BODY_TIMEOUT_SECS, KUSHI_HTTP_MIN_BODY_RATE"
            cycle.fail(408, f"the request body did not arrive in time ({variables})")
        elif self._crowd.has_ended_for(self._limits.last_client_seconds, now) and cycle.fault is None:
            cycle.give_up(503, "the service ends before the request body has arrived")
