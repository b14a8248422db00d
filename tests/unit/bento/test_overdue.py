"""What a client does not send, or does not read, is waited for as long as its time, and no longer."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING

import pytest

from tests.raw_http import frame
from tests.unit.bento.served import QUICK, echo, served, until_answered
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runners.bento.web.asgi import Receive, Scope, Send
    from tests.unit.bento.served import Served

pytestmark = pytest.mark.clock


@pytest.fixture(scope="module")
def echoing() -> Iterator[Served]:
    with served(echo, QUICK) as server:
        yield server


@pytest.mark.parametrize("part", [b"", b"G", b"POST /stops HTTP/1.1\r\nContent-Len", b"GET / HTTP/1.1\r\na: b\r\n"])
def test_a_head_that_stops_is_ended(echoing: Served, part: bytes) -> None:
    with echoing.connect() as connection:
        connection.send(part)
        if part:
            answer = connection.receive()
            assert answer.status == 408
            assert answer.error == "the head of the request did not arrive in time (KUSHI_HTTP_HEAD_TIMEOUT_SECS)"
        assert connection.is_closed()


def test_a_head_that_trickles_is_ended(echoing: Served) -> None:
    with echoing.connect() as connection:
        answer = until_answered(connection, b"", b"GET / HTTP/1.1\r\n", trickle=b"a: b\r\n")
    assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("framing", [b"Content-Length: 5", b"Transfer-Encoding: chunked"])
def test_a_body_that_stops_is_ended(echoing: Served, framing: bytes) -> None:
    with echoing.connect() as connection:
        connection.send(b"POST /stops HTTP/1.1\r\n" + framing + b"\r\n\r\n2\r\n")
        answer = connection.receive()
        assert answer.status == 408
        assert answer.error == (
            "the request body did not arrive in time (KUSHI_HTTP_BODY_TIMEOUT_SECS, KUSHI_HTTP_MIN_BODY_RATE)"
        )
        assert connection.is_closed()


def test_a_body_that_trickles_is_ended(echoing: Served) -> None:
    with echoing.connect() as connection:
        head = b"POST /slow HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n"
        answer = until_answered(connection, b"", head, trickle=b"a")
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_client_that_does_not_read_is_given_up() -> None:
    async def endless(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
            await asyncio.sleep(0)
            if not server.connections:
                return

    with served(endless, QUICK) as server, server.connect() as connection:
        connection.send(frame("GET", "/"))
        eventually(lambda: server.connections == 1, "it is there")
        server.until_nobody_is_connected()


def test_so_is_one_that_does_not_read_and_asks_on_and_on() -> None:
    async def large(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"%d" % (8 << 20))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(8 << 20)})

    few = dataclasses.replace(QUICK, max_waiting_requests=3)
    with served(large, few) as server, server.connect() as connection:
        over = time.monotonic() + 30
        with suppress(ConnectionError):
            while time.monotonic() < over:
                connection.send(frame("GET", "/"))
                time.sleep(0.01)
        server.until_nobody_is_connected()
        assert time.monotonic() < over


def test_nor_is_one_waited_for_that_does_not_read_the_last_answer() -> None:
    async def large(_scope: Scope, _receive: Receive, send: Send) -> None:
        body = bytes(32 << 20)
        headers = [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    with served(large, QUICK) as server, server.connect() as connection:
        connection.send(frame("GET", "/"))
        eventually(lambda: server.connections == 1, "it is there")
        server.until_nobody_is_connected()


@pytest.mark.parametrize("fails", [False, True], ids=["returns", "fails"])
def test_nor_is_one_of_whom_the_application_has_given_up(fails: bool) -> None:
    given_up = Event()

    async def impatient(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(32 << 20), "more_body": True})
        with suppress(TimeoutError):
            await asyncio.wait_for(send({"type": "http.response.body", "body": b"more", "more_body": True}), 0.01)
        given_up.set()
        if fails:
            raise ConnectionError("nobody reads")

    with served(impatient, QUICK) as server, server.connect() as connection:
        connection.send(frame("GET", "/"))
        assert given_up.wait(30)
        server.until_nobody_is_connected()
