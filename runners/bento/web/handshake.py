"""
One client of TLS, from its connect until both ends have agreed. The event loop's own server would keep it to itself: it
would be no connection for the limits, and have a minute.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .crowd import Crowd, Member

__all__ = ["Handshake"]


class Handshake(asyncio.Protocol):
    """Counts among the connections as a silent one, and ends with another one in its place"""

    transport: asyncio.Transport

    def __init__(
        self, crowd: Crowd, members: set[Member], context: ssl.SSLContext, connect: Callable[[], asyncio.Protocol]
    ) -> None:
        """connect: makes what serves the client then"""
        self._crowd = crowd
        self._members = members
        self._context = context
        self._connect = connect
        self._has_begun = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        # This transport would read the client's first words, which are for the one that speaks TLS.
        self._client = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        transport.abort()
        shaking = asyncio.create_task(self._shake())
        shaking.add_done_callback(self._close)
        self.transport = _Shaking(shaking)
        self._members.add(self)
        self._crowd.enter(self)
        self._crowd.rest(self, is_fresh=True)
        if self._crowd.ends:
            self.shutdown()

    def look(self, now: float) -> None:
        """The event loop minds its time"""

    def shutdown(self) -> None:
        """The worker ends: it gets as long as a connection that has no request yet"""
        asyncio.get_running_loop().call_later(self._crowd.limits.last_request_seconds, self._end)

    def _end(self) -> None:
        if self in self._members:
            self.transport.abort()

    def agreed(self, transport: asyncio.Transport) -> None:
        self._leave()
        connection = self._connect()
        transport.set_protocol(connection)
        connection.connection_made(transport)

    async def _shake(self) -> None:
        loop, limits = asyncio.get_running_loop(), self._crowd.limits
        self._has_begun = True
        try:
            await loop.connect_accepted_socket(
                lambda: _Agreed(self),
                self._client,
                ssl=self._context,
                ssl_handshake_timeout=limits.head_seconds,
                ssl_shutdown_timeout=limits.draining_seconds,
            )
        except ssl.SSLError as error:
            self._crowd.complaints.say(f"a client was refused: the TLS handshake failed, {error.reason}", loop.time())
        except OSError:
            # It has left, or took too long.
            pass

    def _close(self, _shaking: asyncio.Task[None]) -> None:
        self._leave()
        # Otherwise the event loop has it.
        if not self._has_begun:
            self._client.close()

    def _leave(self) -> None:
        self._crowd.wake(self)
        self._members.discard(self)


class _Agreed(asyncio.Protocol):
    """The first protocol above TLS, which is there before the other end has agreed"""

    def __init__(self, handshake: Handshake) -> None:
        self._handshake = handshake

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        self._handshake.agreed(transport)


class _Shaking(asyncio.Transport):
    """What can be ended of one"""

    def __init__(self, task: asyncio.Task[None]) -> None:
        super().__init__()
        self._task = task

    def abort(self) -> None:
        self._task.cancel()

    def close(self) -> None:
        self._task.cancel()

    def is_closing(self) -> bool:
        return bool(self._task.cancelling()) or self._task.done()
