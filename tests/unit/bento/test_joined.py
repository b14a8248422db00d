"""Head and body of an answer in one write, under a real uvicorn whose transport's writes are looked at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from runners.bento.web.joined import joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.bento.web.asgi import Receive, Scope, Send

GET = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"


class _Transport(asyncio.Transport):
    """Remembers what is written to it, and when it was closed"""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed_after: int | None = None

    def write(self, data: Any) -> None:  # noqa: ANN401 - bytes of any kind
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed_after = len(self.writes)

    def is_closing(self) -> bool:
        return self.closed_after is not None

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def _written(headers: Sequence[tuple[bytes, bytes]], pieces: Sequence[bytes], request: bytes = GET) -> _Transport:
    async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
        send = joined(send)
        await send({"type": "http.response.start", "status": 200, "headers": [*headers]})
        for place, piece in enumerate(pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": place < len(pieces)})

    async def main() -> _Transport:
        config = Config(application, log_config=None, lifespan="off")
        config.load()
        state, transport = ServerState(), _Transport()
        protocol = HttpToolsProtocol(config, state, {})
        protocol.connection_made(transport)
        protocol.data_received(request)
        await asyncio.gather(*state.tasks)
        protocol.connection_lost(None)
        return transport

    return asyncio.run(main())


def _length(count: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % count


def test_an_answer_of_one_piece_is_one_write() -> None:
    (write,) = _written([_length(4)], [b"done"]).writes
    head, _, body = write.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == b"done"


def test_the_first_piece_goes_with_the_head_and_the_others_as_they_come() -> None:
    first, *others = _written([_length(6)], [b"one", b"two"]).writes
    assert first.endswith(b"\r\n\r\none")
    assert others == [b"two"]


def test_the_head_of_a_stream_does_not_wait() -> None:
    first, *others = _written([], [b"event"]).writes
    assert first.endswith(b"\r\n\r\n")
    assert b"".join(others) == b"5\r\nevent\r\n0\r\n\r\n"


@pytest.mark.parametrize("count", [65 * 1024, 1024 * 1024])
def test_a_long_body_is_not_copied(count: int) -> None:
    first, body = _written([_length(count)], [b"x" * count]).writes
    assert first.endswith(b"\r\n\r\n")
    assert len(body) == count


def test_a_connection_is_closed_after_the_answer() -> None:
    transport = _written([_length(4)], [b"done"], b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
    assert transport.closed_after == len(transport.writes) == 1


def test_another_server_is_left_alone() -> None:
    async def send(_message: Any) -> None:  # noqa: ANN401 - any message
        pass

    assert joined(send) is send
