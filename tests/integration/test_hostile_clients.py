"""Clients that are slow, silent, deaf, many, or leave at the worst moment: each gets its time, nobody else waits."""

from __future__ import annotations

import resource
import socket
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.contract import requests
from tests.integration.hostile import (
    BODY,
    HEADERS,
    PATH,
    SUM,
    all_is_well,
    descriptors,
    image,
    inflight_bytes,
    reset,
    speaks,
)
from tests.integration.occupied import LONG_STEPS, slow_request, until_idle
from tests.raw_http import frame
from tests.serving import Server, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Connection

HEAD_LATE = "the head of the request did not arrive in time (--http-head-timeout-secs)"
BODY_LATE = "the request body did not arrive in time (--http-body-timeout-secs)"
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
    with hurried.connect() as connection:
        connection.send(frame("POST", PATH, [*HEADERS, ("Content-Length", str(len(BODY)))]) + BODY[:-10])
        # longer than the patience, and never without a byte for as long
        assert not drip(connection, BODY[-10:], pause=0.3)
        assert connection.receive().json()["outputs"][0]["data"] == SUM


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
        eventually(lambda: inflight_bytes(hurried) >= len(body), "an answer waits")
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


def test_a_request_that_takes_long_is_waited_for(hurried: Server) -> None:
    with hurried.connect() as connection:
        for _ in range(8):
            connection.send(slow_request(LONG_STEPS))
        assert [connection.receive().status for _ in range(8)] == [200] * 8


@pytest.mark.parametrize("leave", [reset, lambda connection: connection.close()], ids=["reset", "close"])
def test_clients_may_leave_at_every_stage(patient: Server, leave: Callable[[Connection], None]) -> None:
    headers, body = image(256)
    large = frame("POST", requests.path("image"), headers, body)
    head = large.index(b"\r\n\r\n") + 4
    executing = slow_request(LONG_STEPS)
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


def test_ten_thousand_silent_connections_keep_nobody_waiting(patient: Server) -> None:
    wanted = 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = hard if hard != resource.RLIM_INFINITY else 10 * wanted
    count = min(wanted, room - 2000)
    if count < wanted:
        print(f"only {count} connections instead of {wanted}: the limit is {hard} files", file=sys.__stderr__)
    before = patient.memory_kib()
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(room, count + 1000)), hard))
    try:
        with ExitStack() as stack:
            silent = [stack.enter_context(patient.connect()) for _ in range(count)]
            eventually(lambda: descriptors(patient) > count, "all are accepted")
            for connection in silent[::100]:
                connection.send(WHOLE[:30])
            with patient.connect() as connection:
                for _ in range(20):
                    assert connection.ask("POST", PATH, HEADERS, BODY).status == 200
            assert silent[-1].ask("POST", PATH, HEADERS, BODY).status == 200
            assert (patient.memory_kib() - before) / count < 32
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_over_the_bound_only_health_is_answered(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, "--http-max-connections=4")
    with ExitStack() as stack:
        guests = [stack.enter_context(server.connect()) for _ in range(4)]
        for guest in guests:
            assert guest.ask("POST", PATH, HEADERS, BODY).status == 200
        for path, status in [("/v2/health/live", 200), ("/v2/health/ready", 200), ("/v2", 503)]:
            with server.connect() as surplus:
                response = surplus.ask("GET", path)
                assert (response.status, response.header("connection")) == (status, "close")
                assert surplus.is_closed()
        with server.connect() as surplus:
            response = surplus.ask("POST", PATH, HEADERS, BODY)
            assert (response.status, response.error) == (503, "4 connections are open (--http-max-connections)")
            assert response.header("retry-after") == "1"
        assert server.metrics()["kushi_queue_requests"] == 0
        # beyond those that are told so there are those that are not even heard
        crowd = [stack.enter_context(server.connect()) for _ in range(400)]
        assert crowd[-1].is_closed()
        for connection in crowd:
            connection.close()
        guests.pop().close()
        eventually(lambda: server.post(PATH, BODY, HEADERS).status == 200, "there is a place again")
        assert all(guest.ask("POST", PATH, HEADERS, BODY).status == 200 for guest in guests)
    assert any("refusing connections: 4 are open" in line for line in server.log.lines)
