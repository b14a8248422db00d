"""
uvicorn's server with our connections, in the workers of our services.

At the end it accepts what has connected already, and serves it, before it closes its listener.
"""

from __future__ import annotations

import asyncio
import functools
import select
import signal
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from ...descriptors import allow_connections
from .connection import Connection
from .crowd import Crowd
from .handshake import Handshake
from .ways import Ways
from .websocket import WebSocket

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from socket import socket
    from types import FrameType

    from .limits import Limits

__all__ = ["Server"]

_ACCEPTING_SECONDS: Final = 0.02
# As many looks at the listener, of which the last ones have found nobody.
_MOST_LOOKS: Final = 50
_LAST_LOOKS: Final = 5
# BentoML's where nobody chose: of TLS 1.2 they leave what today's clients refuse.
_OUTDATED_CIPHERS: Final = "TLSv1"


class Server(uvicorn.Server):
    """One worker's"""

    def __init__(self, config: uvicorn.Config, limits: Limits, ways: Ways | None = None) -> None:
        super().__init__(config)
        members: Any = self.server_state.connections
        self._crowd = Crowd(limits, members)
        made: Any = functools.partial(Connection, self._crowd, ways or Ways())
        config.http = made
        made = functools.partial(WebSocket, self._crowd)
        config.ws = made
        config.ws_max_size = limits.max_message_bytes
        # A megabyte of it may be a gigabyte.
        config.ws_per_message_deflate = False
        if config.ssl_ciphers == _OUTDATED_CIPHERS:
            config.ssl_ciphers = None
        self._looking: asyncio.Task[None] | None = None
        self._interrupted = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """
        Of two interrupts the second one ends it at once. For uvicorn the first one does as well, where the supervisor's
        word comes before it: but a terminal tells all processes, and these two are the same wish.
        """
        forced_before = self.force_exit
        super().handle_exit(sig, frame)
        if sig == signal.SIGINT and not self._interrupted:
            self._interrupted = True
            self.force_exit = forced_before

    async def startup(self, sockets: list[socket] | None = None) -> None:
        # a client's, and one to the engine that answers it
        allow_connections(self._crowd.limits.max_connections, 2, "KUSHI_HTTP_MAX_CONNECTIONS")
        self._crowd.measure()
        context, self.config.ssl = self.config.ssl, None
        if context is not None:
            self._shake_hands_first(context)
        await super().startup(sockets)
        self._looking = asyncio.create_task(self._look())

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        await _until_accepted(sockets or ())
        self._crowd.ends_since = asyncio.get_running_loop().time()
        try:
            await super().shutdown(sockets)
        finally:
            if self._looking is not None:
                self._looking.cancel()

    def _shake_hands_first(self, context: ssl.SSLContext) -> None:
        members: Any = self.server_state.connections
        made: Any = self.config.http_protocol_class

        def handshake(**options: Any) -> Handshake:  # noqa: ANN401 - uvicorn's
            return Handshake(self._crowd, members, context, functools.partial(made, **options))

        shaking: Any = handshake
        self.config.http_protocol_class = shaking

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._crowd.look(loop.time())
            await asyncio.sleep(self._crowd.limits.look_seconds)


async def _until_accepted(listeners: Sequence[socket]) -> None:
    """Until nobody waits at the listeners. Those of TCP hear of nobody new, see `closing.py`"""
    waiting = select.poll()
    for listener in listeners:
        waiting.register(listener, select.POLLIN)
    found_nobody = 0
    for _ in range(_MOST_LOOKS):
        found_nobody = 0 if waiting.poll(0) else found_nobody + 1
        if found_nobody >= _LAST_LOOKS:
            return
        await asyncio.sleep(_ACCEPTING_SECONDS)
