"""
Clients of gRPC on the port of a Bento: a connection that begins with the preface of HTTP/2 is handed to the engine as
it is, with what was read of it so far, and is the engine's own from then on. No byte of it passes a worker again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from .crowd import Complaints

__all__ = ["BEGINNING", "Handover"]

BEGINNING: Final = b"PRI "
"""Of the preface, which no request of HTTP/1.1 begins with"""
_SECONDS: Final = 5.0


class Handover:
    """The way of connections to one engine"""

    def __init__(self, path: Path) -> None:
        """path: of the socket on which the engine takes them"""
        self._path = str(path)
        self._under_way: set[asyncio.Task[None]] = set()

    def begin(self, transport: asyncio.Transport, data: bytes, complaints: Complaints) -> None:
        """
        Takes the connection away from its transport, which is closed without a word to the client.
        data: what has been read of it
        """
        client = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        transport.abort()
        task = asyncio.create_task(self._hand_over(client, data, complaints))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _hand_over(self, client: socket.socket, data: bytes, complaints: Complaints) -> None:
        loop = asyncio.get_running_loop()
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
            engine.settimeout(0)
            try:
                async with asyncio.timeout(_SECONDS):
                    await loop.sock_connect(engine, self._path)
                    sent = socket.send_fds(engine, [data], [client.fileno()])
                    await loop.sock_sendall(engine, data[sent:])
            except (OSError, TimeoutError) as error:
                why = str(error) or "it takes too long"
                complaints.say(f"a client of gRPC was turned away: the engine does not take it, {why}", loop.time())
