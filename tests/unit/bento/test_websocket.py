"""What a client can do to a WebSocket of a worker, frame by frame."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import os
import struct
import zlib
from typing import TYPE_CHECKING, Final

import pytest

from tests.raw_http import Connection, Headers, Response, frame
from tests.unit.bento.served import PATIENT, served
from tests.waiting import eventually

if TYPE_CHECKING:
    from runners.bento.web.asgi import Receive, Scope, Send
    from tests.unit.bento.served import Served

# most of them end by being closed, which a client may not notice for some time
pytestmark = pytest.mark.clock

FEW = dataclasses.replace(PATIENT, draining_seconds=0.5, max_message_bytes=1 << 16, max_websockets=4)
HASTY = dataclasses.replace(FEW, body_seconds=0.5)
BINARY, CLOSE, PING, PONG = 2, 8, 9, 10
_COMPRESSED: Final = 0x40
_LONG: Final = 126
_LONGEST: Final = 127
_MOST_SHORT: Final = 125
_MOST_LONG: Final = 65535


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    assert scope["type"] == "websocket"
    if scope["path"] == "/absent":
        return await send({"type": "websocket.close"})
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": message["bytes"]})
    return None


def upgrade(headers: Headers = (), path: str = "/", body: bytes = b"") -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    upgraded = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
    return frame("GET", path, [*upgraded, ("Sec-WebSocket-Key", key), *headers], body)


def message(data: bytes, kind: int = BINARY, first: int = 0x80) -> bytes:
    """One frame of a client"""
    length = len(data)
    if length <= _MOST_SHORT:
        said = struct.pack("!B", 0x80 | length)
    elif length <= _MOST_LONG:
        said = struct.pack("!BH", 0x80 | _LONG, length)
    else:
        said = struct.pack("!BQ", 0x80 | _LONGEST, length)
    return bytes([first | kind]) + said + bytes(4) + data


def read(connection: Connection) -> tuple[int, bytes]:
    """One frame of the server"""
    first, second = connection._exactly(2)
    length = second
    if second == _LONG:
        (length,) = struct.unpack("!H", connection._exactly(2))
    elif second == _LONGEST:
        (length,) = struct.unpack("!Q", connection._exactly(8))
    return first & 0x0F, connection._exactly(length)


def last_words(connection: Connection) -> tuple[int, str]:
    kind, data = read(connection)
    assert kind == CLOSE
    return struct.unpack("!H", data[:2])[0], data[2:].decode()


def opened(server: Served, headers: Headers = ()) -> Connection:
    connection = server.connect()
    connection.send(upgrade(headers))
    assert connection.receive("HEAD").status == 101
    return connection


def asked(server: Served, request: bytes) -> Response:
    with server.connect() as connection:
        connection.send(request)
        return connection.receive()


def test_messages_come_back() -> None:
    with served(echo, FEW) as server, opened(server) as connection:
        for data in (b"a", bytes(70), bytes(1 << 16)):
            connection.send(message(data))
            assert read(connection) == (BINARY, data)
        connection.send(message(b"abc", PING))
        assert read(connection) == (PONG, b"abc")


def test_what_is_sent_along_with_the_request_is_not_lost() -> None:
    with served(echo, FEW) as server, server.connect() as connection:
        connection.send(upgrade() + message(b"one") + message(b"two"))
        assert connection.receive("HEAD").status == 101
        assert [read(connection), read(connection)] == [(BINARY, b"one"), (BINARY, b"two")]


def test_thousands_of_messages_at_once_come_back_in_their_order() -> None:
    with served(echo, FEW) as server, opened(server) as connection:
        connection.send(b"".join(message(b"%d" % number) for number in range(5000)))
        for number in range(5000):
            assert read(connection) == (BINARY, b"%d" % number)


@pytest.mark.parametrize(
    "frames",
    [
        message(b"", PING) * 40_000,
        message(b"", PONG) * 40_000,
        message(b"a", first=0) + message(b"", 0, first=0) * 40_000,
        message(b"a", first=0) + message(b"a" * 511, 0, first=0) * 2000,
        message(b"", PING) * 40_000 + message(b"abc"),
    ],
    ids=["pings", "pongs", "empty fragments", "short fragments", "pings before a message"],
)
def test_a_stream_of_frames_that_bring_nothing_is_ended(frames: bytes) -> None:
    with served(echo, FEW) as server, opened(server) as connection:
        connection.send(frames)
        kind, data = read(connection)
        pongs = 0
        while kind == PONG:
            pongs += 1
            kind, data = read(connection)
        assert pongs < 1000
        assert (kind, data[2:]) == (CLOSE, b"too many frames that bring no message")
        server.until_nobody_is_connected()


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (message(b"a", kind=5), 1002),
        (message(b"a", first=0xC0), 1002),
        (message(b"a", kind=0), 1002),
        (message(bytes(126), PING), 1002),
        (b"\x82\x01a", 1002),
        (message(b"\xff", kind=1), 1007),
    ],
    ids=["unknown", "reserved bit", "without a begin", "long ping", "no mask", "no utf-8"],
)
def test_what_is_against_the_protocol_ends_it_with_a_reason_that_arrives(frames: bytes, code: int) -> None:
    with served(echo, FEW) as server, opened(server) as connection:
        connection.send(frames + message(b"behind it") * 1000)
        kind, data = read(connection)
        assert (kind, struct.unpack("!H", data[:2])) == (CLOSE, (code,))
        server.until_nobody_is_connected()


def test_pings_now_and_then_and_large_fragments_are_no_such_stream() -> None:
    with served(echo, FEW) as server, opened(server) as connection:
        for _ in range(50):
            connection.send(message(b"", PING))
            assert read(connection) == (PONG, b"")
        pieces = [message(bytes(520), first=0), *[message(bytes(520), 0, first=0)] * 120, message(b"", 0)]
        connection.send(b"".join(pieces))
        assert read(connection) == (BINARY, bytes(520 * 121))


def test_one_with_a_body_is_refused() -> None:
    with served(echo, FEW) as server:
        for request in (upgrade(body=b"abc"), upgrade([("Transfer-Encoding", "chunked")])):
            answer = asked(server, request)
            assert (answer.status, answer.error) == (400, "a request for a WebSocket has no body")


def test_one_that_waits_behind_a_request_is_refused_without_a_word_in_its_answer() -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await echo(scope, receive, send)
        await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        return await send({"type": "http.response.body", "body": b"ok"})

    with served(application, FEW) as server, server.connect() as connection:
        connection.send(frame("GET", "/") + upgrade())
        assert connection.receive().body == b"ok"
        assert connection.is_closed()


def test_one_where_there_is_none_is_refused() -> None:
    with served(echo, FEW) as server:
        assert asked(server, upgrade(path="/absent")).status == 403


def test_a_message_that_is_too_large_ends_it_with_a_reason_that_arrives() -> None:
    with served(echo, FEW) as server, opened(server) as connection:
        connection.send(message(bytes((1 << 16) + 1)) + message(bytes(1 << 16)) * 20)
        reason = "a message is larger than the 65536 bytes that are accepted"
        assert last_words(connection) == (1009, reason)
        connection.send(message(struct.pack("!H", 1009), CLOSE))
        assert connection.is_closed()


def test_so_does_one_that_comes_in_pieces() -> None:
    with served(echo, FEW) as server, opened(server) as connection:
        connection.send(message(bytes(1 << 15), first=0))
        connection.send(message(bytes(1 << 15), 0, first=0))
        connection.send(message(b"a", 0))
        assert last_words(connection)[0] == 1009


def test_nothing_is_inflated() -> None:
    packer = zlib.compressobj(9, wbits=-15)
    bomb = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_SYNC_FLUSH)
    with (
        served(echo, FEW) as server,
        opened(server, [("Sec-WebSocket-Extensions", "permessage-deflate")]) as connection,
    ):
        connection.send(message(bomb[:-4], first=0x80 | _COMPRESSED))
        assert connection.is_closed() or last_words(connection)[0] == 1002


def test_there_are_not_more_than_are_served() -> None:
    with served(echo, FEW) as server:
        held = [opened(server) for _ in range(4)]
        with opened(server) as connection:
            assert last_words(connection) == (
                1013,
                "this worker has 4 WebSockets, as many as it serves: try again later",
            )
        held.pop().close()
        eventually(lambda: server.connections <= 4, "one has gone")
        with opened(server) as connection:
            connection.send(message(b"a"))
            assert read(connection) == (BINARY, b"a")
        for connection in held:
            connection.close()


def test_they_count_as_connections() -> None:
    with served(echo, dataclasses.replace(FEW, max_connections=2)) as server:
        held = [opened(server) for _ in range(2)]
        assert asked(server, upgrade()).status == 503
        for connection in held:
            connection.close()


@pytest.mark.parametrize(("kind", "size"), [(BINARY, 1 << 16), (PING, 125)])
def test_one_that_does_not_read_is_not_read_either_and_is_given_up(kind: int, size: int) -> None:
    with served(echo, HASTY) as server, opened(server) as connection:
        connection.socket.settimeout(5.0)
        sent = 0
        with pytest.raises(OSError):  # noqa: PT011, PT012 - a timeout or a reset, as it happens
            while True:
                sent += connection.socket.send(message(bytes(size), kind) * (1 + (1 << 16) // size))
        # what the system holds at both ends, and one message
        assert sent < 64 << 20
        server.until_nobody_is_connected()


def test_one_that_does_not_read_the_end_is_given_up() -> None:
    async def pours(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "bytes": bytes(32 << 20)})
        await send({"type": "websocket.close"})

    with served(pours, HASTY) as server, server.connect() as connection:
        connection.send(upgrade())
        assert connection.receive("HEAD").status == 101
        server.until_nobody_is_connected()


def test_frames_before_the_application_has_accepted_wait_outside() -> None:
    accepts = asyncio.Event()

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        await accepts.wait()
        await echo(scope, receive, send)

    with served(late, FEW) as server, server.connect() as connection:
        connection.send(upgrade())
        connection.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):  # noqa: PT012 - the last of many raises
            while True:
                connection.send(message(bytes(1 << 16)))
        loop = next(iter(server.server.server_state.connections)).loop
        loop.call_soon_threadsafe(accepts.set)
        assert connection.receive("HEAD").status == 101


def test_a_client_that_waits_for_a_slow_application_stays() -> None:
    async def slow(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        await asyncio.sleep(0.5)
        await send({"type": "websocket.send", "bytes": b"done"})

    with served(slow, FEW, ping=0.2) as server, opened(server) as connection:
        connection.send(message(b"a") * 2)
        kinds = []
        while True:
            kind, data = read(connection)
            kinds.append(kind)
            if kind == PING:
                connection.send(message(data, PONG))
            elif kind == BINARY:
                break
        assert PING in kinds


def test_one_that_answers_no_ping_is_closed() -> None:
    with served(echo, FEW, ping=0.05) as server, opened(server) as connection:
        assert read(connection)[0] == PING
        assert last_words(connection) == (1011, "keepalive ping timeout")
