"""Clients that are slow, silent, deaf, or leave at the worst moment: each gets its time, nobody else waits."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.contract import requests
from tests.gates import HELD, Gate
from tests.integration.hostile import (
    BODY,
    HEADERS,
    PATH,
    SUM,
    all_is_well,
    image,
    inflight_bytes,
    reset,
    speaks,
)
from tests.integration.occupied import LONG_STEPS, slow_request, until_idle
from tests.raw_http import frame
from tests.serving import Server
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Connection

pytestmark = pytest.mark.clock

HEAD_LATE = "the head of the request did not arrive in time (--http-head-timeout-secs)"
BODY_LATE = "the request body did not arrive in time (--http-body-timeout-secs, --http-min-body-rate)"
WHOLE = frame("POST", PATH, HEADERS, BODY)


@pytest.fixture(scope="module")
def one_second(standard_repository: Path) -> Iterator[Server]:
    """A server that has little patience."""
    timeouts = [f"--http-{what}-timeout-secs={seconds}" for what, seconds in [("head", 1), ("body", 2), ("idle", 2)]]
    server = Server.start(standard_repository, "--log-verbose=1", *timeouts)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def hurried(one_second: Server) -> Iterator[Server]:
    yield from all_is_well(one_second)


@pytest.fixture
def patient(server: Server) -> Iterator[Server]:
    yield from all_is_well(server)


def drip(connection: Connection, data: bytes, pause: float) -> bool:
    """Sends byte after byte until the server has something to say; false when all has been sent."""
    for byte in data:
        if speaks(connection, pause):
            return True
        connection.send(bytes([byte]))
    return False


def test_a_head_that_trickles_in_is_given_up(hurried: Server) -> None:
    with hurried.connect() as slow, hurried.connect() as other:
        assert drip(slow, WHOLE, pause=0.1)
        response = slow.receive()
        assert (response.status, response.error) == (408, HEAD_LATE)
        assert response.header("connection") == "close"
        assert slow.is_closed()
        assert other.ask("POST", PATH, HEADERS, BODY).status == 200


def test_a_head_has_its_time_on_a_connection_that_was_used_before(hurried: Server) -> None:
    with hurried.connect() as connection:
        assert connection.ask("POST", PATH, HEADERS, BODY).status == 200
        connection.send(b"POST /v2")
        assert (connection.receive().status, connection.is_closed()) == (408, True)


@pytest.mark.parametrize("framing", [("Content-Length", "1000"), ("Transfer-Encoding", "chunked")])
def test_a_body_that_stops_is_given_up(hurried: Server, framing: tuple[str, str]) -> None:
    with hurried.connect() as connection:
        connection.send(frame("POST", PATH, [framing]) + b"5\r\n{    \r\n")
        response = connection.receive()
        assert (response.status, response.error) == (408, BODY_LATE)
        assert connection.is_closed()


def test_a_large_body_that_stops_gives_its_memory_back(hurried: Server) -> None:
    with hurried.connect() as connection:
        connection.send(frame("POST", PATH, [("Content-Length", str(8 << 20))]) + b" " * (4 << 20))
        eventually(lambda: inflight_bytes(hurried) >= 4 << 20, "the body is counted")
        assert connection.receive().status == 408


def test_a_body_that_comes_slowly_is_served(hurried: Server) -> None:
    body = BODY.ljust(30_000)
    with hurried.connect() as connection:
        connection.send(frame("POST", PATH, [*HEADERS, ("Content-Length", str(len(body)))]))
        # longer than the patience, and never with less than the rate for as long
        for at in range(0, len(body), 2000):
            assert not speaks(connection, 0.3)
            connection.send(body[at : at + 2000])
        assert connection.receive().json()["outputs"][0]["data"] == SUM


@pytest.mark.parametrize("framing", [("Content-Length", "1000"), ("Transfer-Encoding", "chunked")])
def test_a_body_that_trickles_in_is_given_up(hurried: Server, framing: tuple[str, str]) -> None:
    with hurried.connect() as slow:
        slow.send(frame("POST", PATH, [framing]))
        assert drip(slow, b"3e8\r\n" + b" " * 900, pause=0.1)
        response = slow.receive()
        assert (response.status, response.error) == (408, BODY_LATE)
        assert slow.is_closed()


def test_any_byte_is_progress_where_no_rate_is_asked_for(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, "--http-body-timeout-secs=2", "--http-min-body-rate=0")
    with server.connect() as connection:
        connection.send(frame("POST", PATH, [*HEADERS, ("Content-Length", str(len(BODY)))]) + BODY[:-15])
        assert not drip(connection, BODY[-15:], pause=0.3)
        assert connection.receive().json()["outputs"][0]["data"] == SUM
        connection.send(frame("POST", PATH, [("Content-Length", "9")]) + b"{")
        assert (connection.receive().status, connection.is_closed()) == (408, True)


REFUSED = frame("POST", requests.path("missing"), [("Content-Length", "1000")])


@pytest.fixture(scope="module")
def short_heads(standard_repository: Path) -> Iterator[Server]:
    """A server that has little patience with heads alone"""
    timeouts = [
        f"--http-{what}-timeout-secs={seconds}" for what, seconds in [("head", 2), ("body", 600), ("idle", 600)]
    ]
    server = Server.start(standard_repository, *timeouts)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def drained(short_heads: Server) -> Iterator[Server]:
    yield from all_is_well(short_heads)


def test_a_refused_body_that_stops_does_not_have_the_time_of_an_idle_connection(drained: Server) -> None:
    with drained.connect() as connection:
        connection.send(REFUSED + b" " * 500)
        assert connection.receive().status == 404
        assert connection.is_closed()


def test_a_refused_body_that_goes_on_leads_to_the_next_request(drained: Server) -> None:
    with drained.connect() as connection:
        connection.send(REFUSED)
        assert connection.receive().status == 404
        # longer than the patience, and never without a byte for as long
        for _ in range(10):
            assert not speaks(connection, 0.4)
            connection.send(b" " * 100)
        assert connection.ask("POST", PATH, HEADERS, BODY).status == 200
        connection.send(REFUSED + b" " * 1000)
        assert connection.receive().status == 404
        connection.send(WHOLE[:20])
        response = connection.receive()
        assert (response.status, response.error) == (408, HEAD_LATE), "the head behind it has the time of any other"


def test_a_silent_connection_is_closed_without_a_word(hurried: Server) -> None:
    with hurried.connect() as fresh, hurried.connect() as used:
        assert used.ask("POST", PATH, HEADERS, BODY).status == 200
        assert fresh.is_closed()
        assert used.is_closed()


def test_a_client_that_does_not_read_its_answers_is_given_up(hurried: Server) -> None:
    headers, body = image(512)
    with hurried.connect() as deaf:
        deaf.socket.setblocking(False)
        data = frame("POST", requests.path("image"), headers, body) * 20
        try:
            while data:
                data = data[deaf.socket.send(data) :]
        except BlockingIOError:
            pass
        eventually(lambda: inflight_bytes(hurried) >= 12 * 512 * 512, "an answer waits")
        eventually(lambda: inflight_bytes(hurried) == 0, "nothing waits")


def test_a_client_that_reads_its_answer_slowly_gets_all_of_it(hurried: Server) -> None:
    headers, body = image(1024)
    with hurried.connect() as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        slow.send(frame("POST", requests.path("image"), headers, body))
        # longer than the patience, and never without a byte for as long
        for _ in range(30):
            slow.buffer += slow.socket.recv(64 << 10)
            time.sleep(0.2)
        assert slow.receive().status == 200


def test_a_request_that_takes_long_is_waited_for(hurried: Server, standard_repository: Path) -> None:
    with Gate(standard_repository) as gate, hurried.connect() as connection:
        connection.send(slow_request(HELD))
        gate.until_reached()
        # for longer than any of the patience
        time.sleep(2.5)
        gate.let_through()
        assert connection.receive().status == 200


@pytest.mark.parametrize("leave", [reset, lambda connection: connection.close()], ids=["reset", "close"])
def test_clients_may_leave_at_every_stage(patient: Server, leave: Callable[[Connection], None]) -> None:
    headers, body = image(256)
    large = frame("POST", requests.path("image"), headers, body)
    head = large.index(b"\r\n\r\n") + 4
    executing = slow_request(LONG_STEPS // 8)
    stages = [
        *(WHOLE[: offset * len(WHOLE) // 16] for offset in range(17)),
        large[:head],
        large[: head + 1],
        large[: len(large) // 2],
        large[:-1],
        large,
        executing,
        executing + WHOLE,
        WHOLE + large[: len(large) // 2],
    ]
    for _ in range(3):
        for sent in stages:
            connection = patient.connect()
            connection.send(sent)
            leave(connection)
        # while its answer is being written
        connection = patient.connect()
        connection.send(large)
        assert speaks(connection, 30)
        leave(connection)
    until_idle(patient)


def test_a_client_that_closes_its_half_is_let_go(patient: Server) -> None:
    for sent in (b"", WHOLE[:20], WHOLE[:-1]):
        with patient.connect() as connection:
            connection.send(sent)
            connection.finish_sending()
            if not connection.is_closed():
                assert connection.receive().status == 400
                assert connection.is_closed()


def test_a_hundred_requests_in_one_write_are_answered_in_order(patient: Server) -> None:
    paths = ["/v2/models/add_sub", "/v2/models/image", "/v2/nowhere", "/v2/models/slow"]
    with patient.connect() as connection:
        connection.send(b"".join(frame("GET", paths[number % 4]) for number in range(100)))
        for number in range(100):
            response = connection.receive()
            assert response.json().get("name", "nowhere") == paths[number % 4].rsplit("/", 1)[1], number
