"""Clients that are many: they get the places and descriptors that there are, and keep nobody out of the rest."""

from __future__ import annotations

import os
import re
import resource
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.integration.hostile import BODY, HEADERS, PATH, SUM, all_is_well, descriptors
from tests.raw_http import frame
from tests.waiting import eventually, settles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import StartServer
    from tests.raw_http import Connection
    from tests.serving import Server

pytestmark = pytest.mark.clock

WHOLE = frame("POST", PATH, HEADERS, BODY)
PATIENT = [f"--http-{what}-timeout-secs=600" for what in ("head", "body", "idle")]


@pytest.fixture
def patient(server: Server) -> Iterator[Server]:
    yield from all_is_well(server)


@pytest.fixture
def small(repository: Path, start_server: StartServer) -> Server:
    """A server that has places for four, and all the time for them"""
    models.write_add_sub(repository)
    return start_server(repository, *PATIENT, "--http-max-connections=4", "--http-thread-count=2")


def busy(server: Server, count: int) -> list[Connection]:
    """Connections that have their places, each with a request that has not come whole"""
    connections: list[Connection] = []
    for _ in range(count):
        # that of whoever has looked whether the server is ready may not be free yet
        eventually(lambda: comes_in(server, connections), "a place")
    for connection in connections:
        connection.send(WHOLE[:-1])
    return connections


def finish(connections: list[Connection]) -> None:
    for connection in connections:
        connection.send(WHOLE[-1:])
        assert connection.receive().json()["outputs"][0]["data"] == SUM
        connection.close()


def comes_in(server: Server, guests: list[Connection]) -> bool:
    """Whether there is a place, which is kept then"""
    connection = server.connect()
    if connection.ask("GET", "/v2").status == 200:
        guests.append(connection)
        return True
    connection.close()
    return False


def open_sockets(server: Server) -> int:
    """Those of connections and of whatever else is one"""
    links = []
    for path in Path(f"/proc/{server.pid}/fd").iterdir():
        # the entries vanish while they are looked at
        with suppress(FileNotFoundError):
            links.append(path.readlink().name)
    return sum(link.startswith("socket:") for link in links)


def cpu_seconds(server: Server) -> float:
    """What the process has used of the processors"""
    fields = Path(f"/proc/{server.pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def leave_descriptors(server: Server, count: int) -> int:
    """Lets the process, which has all that it needs, open so many more files; answers how many it may have in all"""
    server.log.wait_for(re.compile(r"ready in \d"), 30)
    allowed = descriptors(server) + count
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


# --- memory ---


@pytest.mark.alone
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


@pytest.mark.alone
def test_what_a_large_request_took_is_given_back_by_a_silent_connection(
    repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, *PATIENT, "--log-verbose=1")
    waves, count, lines = 5, 150, server.log.lines
    large = frame("POST", PATH, HEADERS, BODY.ljust(250_000))

    def given_back(times: int) -> None:
        said = "a connection gave its buffers back"
        eventually(lambda: sum(said in line for line in lines) >= times, "they are given back")

    with ExitStack() as stack:
        connections: list[Connection] = []
        sizes = []
        for wave in range(waves):
            connections += [stack.enter_context(server.connect()) for _ in range(count)]
            for connection in connections[-count:]:
                connection.send(large)
                assert connection.receive().status == 200
            # what one wave gives back the next one takes
            given_back((wave + 1) * count)
            sizes.append(server.memory_kib())
        # the buffers alone would be 64
        assert (sizes[-1] - sizes[1]) / (count * (waves - 2)) < 40
        for connection in connections:
            assert connection.ask("POST", PATH, HEADERS, BODY).status == 200


def test_what_has_come_of_the_next_request_is_kept_where_buffers_are_given_back(
    repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, *PATIENT, "--log-verbose=1")
    with server.connect() as connection:
        connection.send(frame("POST", PATH, HEADERS, BODY.ljust(20_000)) + WHOLE[:20])
        assert connection.receive().status == 200
        said = "a connection gave its buffers back"
        eventually(lambda: any(said in line for line in server.log.lines), "they are given back")
        connection.send(WHOLE[20:])
        assert connection.receive().json()["outputs"][0]["data"] == SUM


# --- places ---


def test_over_the_bound_only_health_is_answered(small: Server) -> None:
    guests = busy(small, 4)
    for path, status in [("/v2/health/live", 200), ("/v2/health/ready", 200), ("/v2", 503)]:
        with small.connect() as surplus:
            response = surplus.ask("GET", path)
            assert (response.status, response.header("connection")) == (status, "close")
            assert surplus.is_closed()
    with small.connect() as surplus:
        response = surplus.ask("POST", PATH, HEADERS, BODY)
        assert (response.status, response.error) == (503, "4 connections are open (--http-max-connections)")
        assert response.header("retry-after") == "1"
    assert small.metrics()["kushi_queue_requests"] == 0
    finish([guests.pop()])
    eventually(lambda: small.post(PATH, BODY, HEADERS).status == 200, "there is a place again")
    finish(guests)
    small.log.wait_for(re.compile(r"4 connections are open at a door \(--http-max-connections\)"), 10)


@pytest.mark.parametrize("said", [b"", WHOLE[:30]], ids=["silent", "within a head"])
def test_a_crowd_over_the_bound_keeps_no_probe_out(small: Server, said: bytes) -> None:
    guests = busy(small, 4)
    with ExitStack() as stack:
        crowd = [stack.enter_context(small.connect()) for _ in range(400)]
        for connection in crowd:
            # who has had to give way cannot say it any more
            with suppress(ConnectionError):
                connection.send(said)
        for _ in range(20):
            assert small.get("/v2/health/live").status == 200
            assert small.get("/v2").status == 503
        assert crowd[0].is_closed(), "who has waited for the longest gives way"
        assert open_sockets(small) < 250
    finish(guests)
    eventually(lambda: small.get("/v2").status == 200, "there is a place again")


def test_a_silent_connection_gives_its_place_to_a_new_one(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, *PATIENT, "--http-max-connections=4", "--http-thread-count=1")
    working = busy(server, 1)
    with ExitStack() as stack:
        silent = [stack.enter_context(server.connect()) for _ in range(3)]
        for connection in silent[1:]:
            assert connection.ask("POST", PATH, HEADERS, BODY).status == 200
        # not at once: whoever is about to ask again is not in the way
        guests: list[Connection] = []
        for _ in silent:
            eventually(lambda: comes_in(server, guests), "a place")
        assert all(connection.is_closed() for connection in silent)
        for guest in guests:
            assert guest.ask("POST", PATH, HEADERS, BODY).status == 200
            guest.close()
    finish(working)


# --- descriptors ---


def test_a_server_without_descriptors_goes_on_and_recovers(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, *PATIENT)
    allowed = leave_descriptors(server, 20)
    complaint = "cannot accept a connection: Too many open files"

    def complaints() -> int:
        return sum(complaint in line for line in server.log.lines)

    with ExitStack() as stack:
        held = [stack.enter_context(server.connect()) for _ in range(60)]
        for connection in held:
            connection.send(WHOLE[:30])
        eventually(lambda: complaints() > 0, "it is said")
        held[0].send(WHOLE[30:])
        assert held[0].receive().status == 200, "who is in is answered"
        spent, pause = cpu_seconds(server), threading.Event()
        pause.wait(2)
        assert cpu_seconds(server) - spent < 1, "it waits"
        assert complaints() < 5
        for connection in held:
            connection.close()
        assert server.get("/v2/health/live").status == 200
    assert server.post(PATH, BODY, HEADERS).status == 200
    settles(lambda: descriptors(server) < allowed - 10, "nothing is left")


def test_silent_connections_do_not_keep_all_descriptors(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, *PATIENT)
    leave_descriptors(server, 20)
    with ExitStack() as stack:
        silent = [stack.enter_context(server.connect()) for _ in range(30)]
        with server.connect() as connection:
            assert connection.ask("POST", PATH, HEADERS, BODY).status == 200
        assert silent[0].is_closed()
