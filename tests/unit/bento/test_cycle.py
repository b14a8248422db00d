"""How an answer is written: early, late, broken off, in the old protocol, without a body."""

from __future__ import annotations

import dataclasses
import logging
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from runners.bento.relay.exchange import BrokenAnswer
from tests.certificates import Authority
from tests.raw_http import frame
from tests.unit.bento.served import PATIENT, QUICK, echo, served
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from runners.bento.web.asgi import Application, Receive, Scope, Send


async def ignore(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answers and reads nothing"""
    await send({"type": "http.response.start", "status": 400, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"no"})


async def stream(scope: Scope, receive: Receive, send: Send) -> None:
    """Of a length that nobody knows"""
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in (b"one,", b"two,", scope["path"].encode()):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


def test_http_1_0_gets_no_chunks() -> None:
    with served(stream, PATIENT) as server:
        with server.connect() as connection:
            connection.send(b"GET /old HTTP/1.0\r\n\r\n")
            answer = connection.receive()
            assert (answer.header("transfer-encoding"), answer.header("connection")) == (None, "close")
            assert answer.body == b"one,two,/old"
        with server.connect() as connection:
            assert connection.ask("GET", "/new").header("transfer-encoding") == "chunked"


async def fail(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise RuntimeError("it fails")


async def break_off(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise BrokenAnswer("the engine went away within an answer")


async def stop(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Leaves the answer as it is"""


async def go_on(_scope: Scope, receive: Receive, _send: Send) -> None:
    """Until the client is gone, or is let go at the end of the worker"""
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.mark.clock
@pytest.mark.parametrize("ends", [fail, break_off, stop, go_on])
@pytest.mark.parametrize("has_tls", [False, True])
def test_an_answer_that_is_not_whole_is_not_taken_for_whole(ends: Application, has_tls: bool, tmp_path: Path) -> None:
    async def half(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await ends(scope, receive, send)

    authority = Authority(tmp_path) if has_tls else None
    limits = dataclasses.replace(PATIENT, exit_seconds=0.5)
    with served(half, limits, authority=authority) as server, server.connect() as connection:
        # The end of the connection would be the end of the answer.
        connection.send(b"GET / HTTP/1.0\r\n\r\n")
        if ends is go_on:
            assert connection.socket.recv(1024)
            server.server.should_exit = True
        with pytest.raises((ConnectionResetError, ssl.SSLEOFError)):
            list(iter(lambda: connection.socket.recv(1024), b""))


def test_an_answer_before_the_end_of_the_body_comes_at_once() -> None:
    with served(ignore, PATIENT) as server, server.connect() as connection:
        connection.send(b"POST / HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\nabc")
        answer = connection.receive()
        assert (answer.status, answer.body, answer.header("connection")) == (400, b"no", "close")
        assert connection.is_closed()


def test_a_client_that_sends_on_is_not_reset_before_it_has_read_the_answer() -> None:
    with served(ignore, PATIENT) as server, server.connect() as connection:
        connection.send(b"POST / HTTP/1.1\r\nContent-Length: 16777216\r\n\r\n")
        for _ in range(16):
            connection.send(bytes(1 << 20))
        assert connection.receive().body == b"no"
        assert connection.is_closed()


@pytest.mark.clock
def test_what_is_sent_behind_the_last_answer_has_an_end() -> None:
    with served(ignore, QUICK) as server, server.connect() as connection:
        connection.send(b"POST / HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n")
        assert connection.receive().body == b"no"
        with pytest.raises(OSError):  # noqa: PT011, PT012 - reset or broken, as it happens
            while True:
                connection.send(bytes(1 << 16))
        server.until_nobody_is_connected()


def test_a_request_to_wait_with_the_body_is_answered_without_it() -> None:
    with served(ignore, PATIENT) as server, server.connect() as connection:
        connection.send(b"POST / HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert connection.receive().status == 400
        assert connection.is_closed()


def test_a_body_that_has_come_unread_keeps_the_connection() -> None:
    with served(ignore, PATIENT) as server, server.connect() as connection:
        for _ in range(2):
            assert connection.ask("POST", "/", body=b"a").header("connection") is None


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_has_none(status: int) -> None:
    async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body"})

    with served(application, PATIENT) as server, server.connect() as connection:
        for _ in range(2):
            connection.send(frame("GET", "/"))
            head = connection._until(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status)
            assert b"transfer-encoding" not in head


def test_an_answer_to_head_has_its_length_and_no_body() -> None:
    with served(echo, PATIENT) as server, server.connect() as connection:
        for _ in range(2):
            answer = connection.ask("HEAD", "/head")
            assert (answer.header("content-length"), answer.body) == ("16", b"")


def test_an_application_that_fails_is_answered_for(caplog: pytest.LogCaptureFixture) -> None:
    async def application(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError("it fails")

    with served(application, PATIENT) as server, server.connect() as connection:
        assert connection.ask("GET", "/").status == 500
    assert "it fails" in caplog.text


START = {"type": "http.response.start", "status": 200, "headers": []}
END = {"type": "http.response.body"}


def start(name: bytes, value: bytes) -> dict[str, object]:
    return {**START, "headers": [(name, value)]}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([END], "the application sent 'http.response.body', expected 'http.response.start'"),
        ([start(b"a b", b"c")], "a header of the answer has the name b'a b', which HTTP does not allow"),
        ([start(b"a", b"b\r\nc: d")], "the header b'a' of the answer has a value that HTTP does not allow"),
        ([START, START], "the application sent 'http.response.start', expected 'http.response.body'"),
        (
            [start(b"content-length", b"1"), {**END, "body": b"ab"}],
            "the body of the answer is longer than its content-length",
        ),
        ([start(b"content-length", b"1"), END], "the body of the answer is shorter than its content-length"),
        ([START, END, END], "the application sent 'http.response.body' after the end of its answer"),
    ],
)
def test_what_an_application_does_wrong_is_in_the_log(
    messages: list[dict[str, object]], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    with served(application, PATIENT) as server:
        with server.connect() as connection, suppress(ConnectionError):
            assert connection.ask("GET", "/").status in {200, 500}
        eventually(lambda: said in caplog.text, "it is in the log")


def test_an_application_may_send_its_chunks_as_such() -> None:
    async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(start(b"transfer-encoding", b"chunked"))
        await send({**END, "body": b"whole"})

    with served(application, PATIENT) as server:
        for version in (b"1.0", b"1.1"):
            with server.connect() as connection:
                connection.send(b"GET / HTTP/%s\r\nhost: h\r\n\r\n" % version)
                answer = connection.receive()
                assert answer.body == b"whole"
                assert (answer.header("transfer-encoding") == "chunked") is (version == b"1.1")


def test_answers_that_break_are_one_line_without_a_stack_and_not_one_each(caplog: pytest.LogCaptureFixture) -> None:
    async def breaking(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise BrokenAnswer("the engine went away within an answer")

    with served(breaking, PATIENT) as server:
        for _ in range(20):
            with server.connect() as connection, pytest.raises(ConnectionError):
                connection.ask("GET", "/")
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [(record.getMessage(), record.exc_info) for record in warned] == [
        ("the engine went away within an answer", None)
    ]


@pytest.mark.clock
def test_bodies_that_stop_behind_the_begin_of_an_answer_are_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def early(_scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        while (await receive())["more_body"]:
            pass

    with served(early, QUICK) as server, server.connect() as connection:
        connection.send(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nx")
        with pytest.raises(ConnectionError):
            connection.receive()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
