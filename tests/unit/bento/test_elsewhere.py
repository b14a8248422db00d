"""The edge in front of an engine on another host: what that one sees, on which connections."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from runners import Client, Engine, EngineOptions, HttpOptions, ServerTls
from runners.bento.relay.exchange import Relay
from runners.bento.relay.origin import Origin
from runners.bento.relay.watch import Watch
from runners.bento.web.edge import Edge
from tests import models
from tests.certificates import Authority
from tests.unit.bento.asgi import Call, answering, ask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from runners.bento.web.asgi import Message, Receive, Scope, Send
    from runners.calls import Calls

WAIT_S = 30.0
CROWD = 450


class Remote:
    """Answers each request with an empty 200"""

    def __init__(self) -> None:
        self.connections = 0
        self.serving: set[asyncio.Task[None] | None] = set()
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.serving.add(asyncio.current_task())
        try:
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def edge_before(remote: Remote) -> AsyncIterator[Edge]:
    """Started, as a server starts it, and stopped"""
    server = await asyncio.start_server(remote.serve, "127.0.0.1", 0)
    edge = Edge(_application, Origin.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/team"), (), 100)
    started, stop = asyncio.Event(), asyncio.Event()

    async def receive() -> Message:
        if not started.is_set():
            return {"type": "lifespan.startup"}
        await stop.wait()
        return {"type": "lifespan.shutdown"}

    async def send(message: Message) -> None:
        assert message["type"] == "lifespan.startup.complete"
        started.set()

    life = asyncio.create_task(edge({"type": "lifespan"}, receive, send))
    await started.wait()
    try:
        yield edge
    finally:
        stop.set()
        await life
        server.close()
        await asyncio.gather(*filter(None, remote.serving))


async def _application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "lifespan":
        await answering()(scope, receive, send)
        return
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()


def test_it_is_addressed_by_its_name_on_one_connection() -> None:
    async def main() -> None:
        remote = Remote()
        async with asyncio.timeout(WAIT_S), edge_before(remote) as edge:
            for _ in range(5):
                answer = await ask(
                    edge, Call("/v2/a%2Fb", method="GET", headers=[(b"host", b"bento"), (b"x-mine", b"1")])
                )
                assert answer.status == 200
            for path in ("/v1/embeddings", "/v1/models/a"):
                assert (await ask(edge, Call(path))).status == 200
            # what is none of the protocol's is the service's own
            for path in ("/v3", "/v1", "/v1/embeddings/x", "/v1/../v2", "/v1/models/../x"):
                assert (await ask(edge, Call(path))).body == b"done"
        assert remote.connections == 1
        assert len(remote.heads) == 7
        first, *lines = remote.heads[0].decode().split("\r\n")
        assert first == "GET /team/v2/a%2Fb HTTP/1.1"
        assert lines[0].startswith("host: 127.0.0.1:")
        assert lines[1:] == ["x-mine: 1", "", ""]

    asyncio.run(main())


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.bento.relay.exchange._IDLE_SECONDS", 0.0)

    async def main() -> None:
        remote = Remote()
        async with asyncio.timeout(WAIT_S), edge_before(remote) as edge:
            for _ in range(3):
                assert (await ask(edge, Call("/v2"))).status == 200
        assert remote.connections == 3

    asyncio.run(main())


@pytest.fixture(scope="module")
def models_of(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    models.write_add_sub(path)
    return path


@contextmanager
def relay_to(address: tuple[str, int], authority: Authority | None, engine: Calls) -> Iterator[Relay]:
    origin = Origin("", address, secure=authority is not None)
    files = {"ca_cert": str(authority.certificate)} if authority else {}
    with closing(Relay(origin, Watch(engine), files)) as relay:
        yield relay


def test_a_host_that_does_not_take_the_connection_is_not_waited_for(
    models_of: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.bento.relay.exchange._CONNECT_SECONDS", 0.05)
    # The kernel takes as many as the queue holds, and answers no other.
    with (
        Engine(models_of) as live,
        socket.create_server(("127.0.0.1", 0), backlog=0) as server,
        socket.create_connection(server.getsockname()),
    ):

        async def main() -> None:
            async with asyncio.timeout(WAIT_S):
                with relay_to(server.getsockname(), None, live) as relay:
                    assert (await ask(relay, Call("/v2"))).status == 503

        asyncio.run(main())


def test_a_host_that_stands_still_in_a_handshake_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is known before that.
    monkeypatch.setattr("runners.bento.relay.exchange._HANDSHAKE_SECONDS", 600.0)
    authority = Authority(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with Client(f"https://127.0.0.1:{address[1]}", ca_cert=authority.certificate) as client:

            async def main() -> None:
                async with asyncio.timeout(WAIT_S):
                    with relay_to(address, authority, client) as relay:
                        assert (await ask(relay, Call("/v2"))).status == 503

            asyncio.run(main())


def test_handshakes_of_a_crowd_are_waited_for(models_of: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # How long they take depends on what else the machine does.
    for limit in ("exchange._CONNECT_SECONDS", "exchange._HANDSHAKE_SECONDS", "watch._ANSWER_SECONDS"):
        monkeypatch.setattr(f"runners.bento.relay.{limit}", 120.0)
    authority = Authority(tmp_path)
    identity = authority.sign("engine", kind="rsa")
    tls = ServerTls(str(identity.certificate), str(identity.key))
    options = EngineOptions(http=HttpOptions(tls=tls, head_timeout_seconds=120), io_threads=1)
    with Engine(models_of, options=options) as engine:
        address = "127.0.0.1", engine.serve_http("127.0.0.1", 0)

        async def main() -> None:
            with relay_to(address, authority, engine) as relay:
                calls = [Call("/v2", method="GET", headers=[(b"host", b"engine")]) for _ in range(CROWD)]
                answers = await asyncio.gather(*(ask(relay, call) for call in calls))
            assert [answer.status for answer in answers] == [200] * CROWD

        asyncio.run(main())
