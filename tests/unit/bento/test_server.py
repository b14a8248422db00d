"""The server of a worker: whose it is, and what it asks of the system."""

from __future__ import annotations

import asyncio
import dataclasses
import resource
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvicorn

from runners.bento.internals.server import serve_with
from runners.bento.web.crowd import Complaints, Crowd
from runners.bento.web.edge import Edge, server_for
from runners.bento.web.limits import Limits
from runners.bento.web.server import Server
from runners.settings import read_settings
from tests.forks import forked
from tests.raw_http import Connection, frame
from tests.unit.bento.asgi import answering
from tests.unit.bento.served import QUICK, echo, served
from tests.waiting import eventually

if TYPE_CHECKING:
    from runners.bento.web.asgi import Receive, Scope, Send

pytestmark = pytest.mark.clock

FIRST_SPARE = 64


def test_bentoml_makes_ours_for_our_application_and_uvicorns_for_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn, "Server", uvicorn.Server)
    serve_with(server_for)
    serve_with(server_for)
    ours = uvicorn.Server(uvicorn.Config(Edge(answering(), None, (), 1), log_config=None))
    other = uvicorn.Server(uvicorn.Config(answering(), log_config=None))
    assert isinstance(ours, Server)
    assert not isinstance(other, Server)


def test_the_variables_of_the_engines_door_set_the_limits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Limits.of(read_settings({}), max_message_bytes=1 << 20, max_websockets=256) == Limits()
    monkeypatch.setenv("KUSHI_HTTP_BODY_TIMEOUT_SECS", "3")
    monkeypatch.setenv("KUSHI_HTTP_MIN_BODY_RATE", "0")
    limits = Limits.of(read_settings({}), max_message_bytes=1, max_websockets=1)
    assert (limits.body_seconds, limits.least_body_bytes) == (3, 1)


@pytest.mark.parametrize(
    ("told", "at_once"),
    [
        ([signal.SIGTERM], False),
        ([signal.SIGINT, signal.SIGTERM], False),
        ([signal.SIGTERM, signal.SIGINT], False),
        ([signal.SIGTERM, signal.SIGINT, signal.SIGTERM], False),
        ([signal.SIGINT, signal.SIGINT], True),
        ([signal.SIGINT, signal.SIGTERM, signal.SIGINT], True),
    ],
    ids=str,
)
def test_only_a_second_interrupt_ends_it_at_once(told: list[signal.Signals], at_once: bool) -> None:
    server = Server(uvicorn.Config(answering(), log_config=None), Limits())
    for number in told:
        server.handle_exit(number, None)
    assert server.should_exit
    assert server.force_exit is at_once


@pytest.mark.alone
def test_the_soft_limit_of_open_files_is_raised() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())  # of what other tests keep open, too
    soft = highest + 100

    def child() -> str:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with served(echo, dataclasses.replace(QUICK, max_connections=soft + 100)):
            return str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    assert int(forked(child)) > soft


@pytest.mark.alone
@pytest.mark.parametrize(("soft", "fewest"), [(256, 150), (1024, 700), (20000, 16384)])
def test_descriptors_are_left_for_what_is_no_connection(soft: int, fewest: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < soft:
        pytest.skip("this machine allows fewer open files")

    def child() -> str:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        crowd = Crowd(Limits(), set())
        crowd.measure()
        return str(crowd.most)

    assert fewest <= int(forked(child)) <= soft - FIRST_SPARE


def test_a_connection_that_cannot_be_looked_after_is_closed_and_the_others_keep_their_times() -> None:
    class Transport(asyncio.Transport):
        aborted = False

        def abort(self) -> None:
            self.aborted = True

    class Member:
        def __init__(self, fault: Exception | None) -> None:
            self.transport: asyncio.Transport = Transport()
            self.looks = 0
            self._fault = fault

        def look(self, _now: float) -> None:
            self.looks += 1
            if self._fault is not None:
                raise self._fault

    broken, sound = Member(ValueError("no look")), Member(None)
    crowd = Crowd(Limits(), {broken, sound})
    crowd.look(1.0)
    crowd.look(2.0)
    assert sound.looks == 2
    assert [member.transport.aborted for member in (broken, sound)] == [True, False]  # type: ignore[attr-defined] # of the test's


def test_who_has_connected_is_served_when_the_server_has_been_told_to_end() -> None:
    async def main() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        server = Server(uvicorn.Config(echo, log_config=None, lifespan="off", loop="uvloop"), QUICK)
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0)
        with Connection(listener.getsockname()) as connection:
            server.should_exit = True
            connection.send(frame("GET", "/late"))
            answer = await loop.run_in_executor(None, connection.receive)
            assert answer.body == b"GET|/late|host|"
        await task

    asyncio.run(main())


def test_a_body_that_comes_steadily_does_not_keep_the_worker_from_ending() -> None:
    steady = dataclasses.replace(QUICK, body_seconds=600.0, last_client_seconds=0.2)
    ended = threading.Event()

    def send_on(connection: Connection) -> None:
        with suppress(OSError):
            while not ended.wait(0.01):
                connection.send(b"x")

    with served(echo, steady) as server:
        connection = server.connect()
        connection.send(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\nx")
        sender = threading.Thread(target=send_on, args=(connection,))
        sender.start()
    try:
        answer = connection.receive()
        assert (answer.status, answer.json()) == (
            503,
            {"error": "the service ends before the request body has arrived"},
        )
    finally:
        ended.set()
        sender.join()
        connection.close()


def test_a_client_that_does_not_notice_the_end_is_not_waited_for() -> None:
    patient = dataclasses.replace(QUICK, draining_seconds=60.0, body_seconds=60.0)
    with served(echo, patient) as server:
        connection = server.connect()
        assert connection.ask("GET", "/").status == 200
    assert connection.is_closed()
    connection.close()


def test_what_runs_at_the_end_is_answered_and_its_connection_closes() -> None:
    begun = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        while not server.server.should_exit:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        await echo(scope, receive, send)

    with served(slow, QUICK) as server, server.connect() as connection:
        connection.send(frame("GET", "/slow"))
        eventually(begun.is_set, "the request runs")
        server.server.should_exit = True
        answer = connection.receive()
        assert (answer.body, answer.header("connection")) == (b"GET|/slow|host|", "close")
        assert connection.is_closed()


def test_complaints_are_counted_where_they_are_not_said(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    for now in (1.0, 2.0, 10.9, 11.0, 30.0):
        complaints.say("no", now)
    assert caplog.messages == ["no", "no (2 more since the last such line)", "no"]
