"""An ASGI application behind a worker's server, in this process and on a real socket."""

from __future__ import annotations

import dataclasses
import socket
import ssl
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

from uvicorn import Config

from runners.bento.web.limits import Limits
from runners.bento.web.server import Server
from runners.bento.web.ways import Ways
from tests.raw_http import Connection
from tests.run.tiers import CLOCK, needs
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runners.bento.relay.shortcut import Shortcut
    from runners.bento.web.asgi import Application, Receive, Scope, Send
    from tests.certificates import Authority

__all__ = ["PATIENT", "QUICK", "Served", "echo", "served", "until_answered"]

SHORT_S = 5.0
# A test of a limit need not wait longer than the machine is busy; it belongs to the tier of the clock.
QUICK = Limits(head_seconds=0.5, body_seconds=0.5, draining_seconds=0.5, look_seconds=0.05)
# It waits longer than any test.
PATIENT = dataclasses.replace(QUICK, head_seconds=30.0, body_seconds=30.0, draining_seconds=30.0)


class Served:
    """The running server"""

    def __init__(self, server: Server, thread: Thread, address: tuple[str, int], tls: ssl.SSLContext | None) -> None:
        self.server = server
        self.address = address
        self._thread = thread
        self._tls = tls

    def connect(self) -> Connection:
        return Connection(self.address, tls=self._tls)

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)

    def until_nobody_is_connected(self) -> None:
        eventually(lambda: self.connections == 0, "all connections are closed")

    def until_it_has_ended(self) -> None:
        """Fails where it does not end by itself"""
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server goes on"


@contextmanager
def served(
    application: Application,
    limits: Limits = PATIENT,
    *,
    ping: float = 20.0,
    authority: Authority | None = None,
    shortcut: Callable[[], Shortcut | None] = lambda: None,
) -> Iterator[Served]:
    """With an authority: over TLS"""
    times = (limits.head_seconds, limits.body_seconds, limits.draining_seconds, limits.last_client_seconds)
    shortest = min(*times, limits.exit_seconds, ping)
    if shortest < SHORT_S:
        needs(CLOCK, f"has a server with a limit of {shortest} s")
    identity = authority.sign("server") if authority else None
    tls = ssl.create_default_context(cafile=authority.certificate) if authority else None
    listener = socket.create_server(("127.0.0.1", 0))
    config = Config(
        application,
        log_config=None,
        lifespan="off",
        loop="uvloop",
        timeout_keep_alive=60,
        ws_ping_interval=ping,
        ws_ping_timeout=ping,
        ssl_certfile=identity.certificate if identity else None,
        ssl_keyfile=identity.key if identity else None,
        # BentoML's default
        ssl_ciphers="TLSv1",
    )
    server = Server(config, limits, Ways(shortcut))
    thread = Thread(target=server.run, args=([listener],))
    address = listener.getsockname()
    thread.start()
    try:
        eventually(lambda: server.started, "the server has started")
        yield Served(server, thread, address, tls)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path, the headers and the body"""
    assert scope["type"] == "http"
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    names = b" ".join(name for name, _ in scope["headers"])
    text = b"|".join([scope["method"].encode(), scope["path"].encode(), names, body])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


def until_answered(connection: Connection, piece: bytes, begin: bytes = b"", trickle: bytes = b"") -> bytes:
    """Sends that again and again, and answers the first line that comes back"""
    connection.send(begin)
    if trickle:
        connection.socket.settimeout(0.05)
    for _ in range(4000):
        try:
            connection.send(trickle or piece)
            if trickle or connection.has_answer():
                connection._more()
        except TimeoutError:
            continue
        except OSError:
            break
        if connection.buffer:
            break
    return connection.buffer
