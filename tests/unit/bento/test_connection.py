"""
What a client can send to a connection of a worker, byte by byte. Nearly all of it went wrong under the protocol of
uvicorn, and goes wrong again where uvicorn has changed what ours takes from it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl
from typing import TYPE_CHECKING

import pytest

from tests.certificates import Authority
from tests.raw_http import Connection, chunked, frame
from tests.unit.bento.served import PATIENT, QUICK, echo, served, until_answered
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runners.bento.web.asgi import Receive, Scope, Send
    from tests.unit.bento.served import Served

AFTER = frame("GET", "/after")


@pytest.fixture(scope="module")
def patient() -> Iterator[Served]:
    """Waits longer than any test"""
    with served(echo, PATIENT) as server:
        yield server


# --- upgrades ---


@pytest.mark.parametrize("offer", ["h2c", "TLS/1.0", "websocket, h2c", "anything"])
@pytest.mark.parametrize("body", [b"", b"abc"], ids=["nothing", "length"])
def test_an_upgrade_that_is_no_websocket_is_as_if_it_were_not_there(patient: Served, offer: str, body: bytes) -> None:
    headers = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", offer), ("HTTP2-Settings", "AAMAAABkAAQ")]
    with patient.connect() as connection:
        connection.send(frame("POST", "/upgraded", headers, body) + AFTER)
        assert connection.receive().body.endswith(b"|" + body)
        assert connection.receive().body == b"GET|/after|host|"


def test_so_is_one_with_a_body_in_chunks_and_an_upgrade_behind_it(patient: Served) -> None:
    headers = [("Connection", "Upgrade"), ("Upgrade", "h2c"), ("Transfer-Encoding", "chunked")]
    with patient.connect() as connection:
        for _ in range(2):
            connection.send(frame("POST", "/upgraded", headers, chunked([b"abc", b"de"])) * 2 + AFTER)
            for _ in range(2):
                assert connection.receive().body == b"POST|/upgraded|host connection transfer-encoding|abcde"
            assert connection.receive().body == b"GET|/after|host|"


def test_an_upgrade_whose_bytes_come_one_by_one_is_served(patient: Served) -> None:
    with patient.connect() as connection:
        for byte in frame("POST", "/slow", [("Connection", "Upgrade"), ("Upgrade", "h2c")], b"abc") + AFTER:
            connection.send(bytes([byte]))
        assert connection.receive().body == b"POST|/slow|host content-length connection|abc"
        assert connection.receive().body == b"GET|/after|host|"


def test_connect_is_refused(patient: Served) -> None:
    with patient.connect() as connection:
        connection.send(b"CONNECT somewhere:443 HTTP/1.1\r\nHost: somewhere:443\r\n\r\n")
        answer = connection.receive()
        assert (answer.status, answer.error) == (405, "the method CONNECT is not served")
        assert connection.is_closed()


# --- trailers ---


def test_trailers_are_no_headers(patient: Served) -> None:
    with patient.connect() as connection:
        connection.send(b"POST /t HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n")
        connection.send(b"Kushi-Timeout-Us: 1\r\nContent-Encoding: gzip\r\nExpect: 100-continue\r\n\r\n")
        assert connection.receive().body == b"POST|/t|transfer-encoding|abc"


@pytest.mark.parametrize("piece", [b"t: x\r\n", b"t" * 1024], ids=["many", "one that does not end"])
def test_trailers_without_end_are_refused(patient: Served, piece: bytes) -> None:
    with patient.connect() as connection:
        connection.send(b"POST /t HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n")
        answer = until_answered(connection, piece)
    assert answer is not None
    assert b"431" in answer.split(b"\r\n")[0]


def test_a_chunk_whose_extension_does_not_end_is_refused(patient: Served) -> None:
    with patient.connect() as connection:
        connection.send(b"POST /t HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;")
        answer = until_answered(connection, b"x" * 1024)
    assert b"431" in answer.split(b"\r\n")[0]


def test_a_body_of_too_many_chunks_is_refused() -> None:
    with served(echo, dataclasses.replace(PATIENT, max_chunks=10)) as server, server.connect() as connection:
        connection.send(frame("POST", "/", [("Transfer-Encoding", "chunked")], chunked([b"a"] * 9)))
        assert connection.receive().body.endswith(b"a" * 9)
        connection.send(frame("POST", "/", [("Transfer-Encoding", "chunked")], chunked([b"a"] * 10)))
        answer = connection.receive()
        assert (answer.status, answer.error) == (400, "the body has more than 10 chunks (KUSHI_HTTP_MAX_CHUNKS)")


# --- what is no HTTP, and what is too much ---


@pytest.mark.parametrize(
    "head",
    [
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/3\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_as_the_protocol_says_it(patient: Served, head: bytes) -> None:
    with patient.connect() as connection:
        connection.send(head)
        answer = connection.receive()
        assert (answer.status, answer.error) == (400, "the request is no HTTP/1.1")
        assert connection.is_closed()


@pytest.mark.parametrize("coding", ["gzip, chunked", "identity, chunked", "chunked, chunked", "gzip", "chunked;a=b"])
def test_no_coding_but_chunked_is_read(patient: Served, coding: str) -> None:
    with patient.connect() as connection:
        connection.send(frame("POST", "/", [("Transfer-Encoding", coding)], chunked([b"abc"])) + AFTER)
        assert connection.receive().status == 400
        assert connection.is_closed()


@pytest.mark.clock
def test_a_fault_never_stands_in_the_place_of_an_answer() -> None:
    async def later(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.1)
        await echo(scope, receive, send)

    with served(later, PATIENT) as server, server.connect() as connection:
        connection.send(frame("GET", "/one") + frame("GET", "/two") + b"nonsense\r\n\r\n")
        assert connection.receive().body == b"GET|/one|host|"
        assert connection.receive().body == b"GET|/two|host|"
        assert connection.is_closed()


def test_a_body_that_is_no_http_is_refused(patient: Served) -> None:
    with patient.connect() as connection:
        connection.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n")
        answer = connection.receive()
        assert (answer.status, answer.error) == (400, "the request is no HTTP/1.1")
        assert connection.is_closed()


def test_as_many_headers_as_are_allowed_are_read(patient: Served) -> None:
    with patient.connect() as connection:
        assert connection.ask("GET", "/", [("a", "b")] * 99).status == 200
        answer = connection.ask("GET", "/", [("a", "b")] * 100)
        assert answer.status == 431
        assert answer.error == (
            "the head of the request has more than 100 headers (KUSHI_HTTP_MAX_HEADERS) or 65536 bytes "
            "(KUSHI_HTTP_MAX_HEAD_SIZE)"
        )


@pytest.mark.parametrize(
    ("begin", "piece"),
    [(b"GET /", b"a" * 1024), (b"GET / HTTP/1.1\r\n", b"a" * 1024), (b"GET / HTTP/1.1\r\na: ", b"a" * 1024)],
    ids=["target", "name", "value"],
)
def test_a_head_without_end_is_refused(patient: Served, begin: bytes, piece: bytes) -> None:
    with patient.connect() as connection:
        connection.send(begin)
        assert until_answered(connection, piece).startswith(b"HTTP/1.1 431 ")


def test_requests_that_wait_behind_another_have_a_bound() -> None:
    limits = dataclasses.replace(PATIENT, max_waiting_requests=4)
    with served(echo, limits) as server, server.connect() as connection:
        connection.send(b"".join(frame("GET", f"/{number}") for number in range(1000)))
        for number in range(5):
            assert connection.receive().body == f"GET|/{number}|host|".encode()
        assert connection.is_closed()


def test_nothing_is_read_behind_the_last_request(patient: Served) -> None:
    with patient.connect() as connection:
        connection.send(frame("GET", "/last", [("Connection", "close")]) + AFTER * 100)
        assert connection.receive().body == b"GET|/last|host connection|"
        assert connection.is_closed()


def test_a_client_that_leaves_is_missed_by_the_request_that_runs() -> None:
    gone = []

    async def waiting(scope: Scope, receive: Receive, _send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.append(scope["path"])

    with served(waiting, PATIENT) as server:
        with server.connect() as connection:
            connection.send(frame("GET", "/one") + frame("GET", "/two"))
            eventually(lambda: server.connections == 1, "it is there")
        eventually(lambda: gone == ["/one"], "it hears of it")


def test_refusals_are_one_line_each_and_not_more_of_them_than_the_log_can_take(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with served(echo, PATIENT) as server:
        for _ in range(50):
            with server.connect() as connection:
                connection.send(b"nonsense\r\n\r\n")
                assert connection.receive().status == 400
    lines = [record.getMessage() for record in caplog.records if record.name != "asyncio"]
    assert [line for line in lines if "refused" in line] == ["a client was refused: the request is no HTTP/1.1"]
    assert not [line for line in lines if "Invalid HTTP" in line]


# --- TLS ---


@pytest.mark.clock
def test_all_of_it_holds_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with served(echo, QUICK, authority=authority) as server:
        with server.connect() as connection:
            connection.send(frame("POST", "/upgraded", [("Connection", "Upgrade"), ("Upgrade", "h2c")], b"abc") + AFTER)
            assert connection.receive().body == b"POST|/upgraded|host content-length connection|abc"
            assert connection.receive().body == b"GET|/after|host|"
            connection.send(b"POST /stops HTTP/1.1\r\nContent-Length: 5\r\n\r\n")
            assert connection.receive().status == 408
            assert connection.is_closed()
        with server.connect() as connection:
            connection.send(b"nonsense\r\n\r\n")
            assert connection.receive().status == 400
        server.until_nobody_is_connected()


def test_tls_1_2_is_spoken_with_ciphers_that_clients_trust(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.create_default_context(cafile=authority.certificate)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        served(echo, PATIENT, authority=authority) as server,
        Connection(server.address, tls=context) as connection,
    ):
        assert connection.ask("GET", "/before").body == b"GET|/before|host|"
