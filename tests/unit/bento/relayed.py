"""A relay in front of an engine that answers whatever a test writes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from runners import Engine
from runners.bento.relay.exchange import Relay
from runners.bento.relay.origin import Origin
from runners.bento.relay.watch import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence
    from pathlib import Path

__all__ = ["OK", "WAIT_S", "Scripted", "relay_to", "relaying", "run"]

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
WAIT_S = 30.0


class Scripted:
    """An engine that reads the head of each request and then does what the script says"""

    def __init__(self, script: Sequence[bytes], *, close: bool) -> None:
        self.connections = 0
        self.heads: list[bytes] = []
        self.gone = asyncio.Event()
        self._script = list(script)
        self._close = close

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self._script:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(self._script.pop(0))
                await writer.drain()
            if not self._close:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.gone.set()
            writer.close()


def relay_to(path: Path, live: Engine) -> Relay:
    return Relay(Origin("", path), Watch(live))


@asynccontextmanager
async def relaying(path: Path, live: Engine, engine: Scripted) -> AsyncIterator[Relay]:
    server = await asyncio.start_unix_server(engine.serve, path)
    relay = relay_to(path, live)
    try:
        yield relay
    finally:
        relay.close()
        server.close()
        await server.wait_closed()


def run(main: Coroutine[None, None, None]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(main, WAIT_S)

    asyncio.run(limited())
