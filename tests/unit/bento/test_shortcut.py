"""Ordinary requests for the engine take no way through ASGI; the engine here answers whatever the test writes."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from runners import Engine
from runners.bento.relay.exchange import Relay
from runners.bento.relay.origin import Origin
from runners.bento.relay.watch import Watch
from tests.raw_http import Connection, frame
from tests.unit.bento.served import served
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runners.bento.relay.shortcut import Shortcut
    from runners.bento.web.asgi import Receive, Scope, Send
    from tests.unit.bento.served import Served

PATH = "/v2/models/m/infer"
ASK = frame("POST", PATH, body=b"abc")


def answer(body: bytes = b"ok") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nx-engine: it\r\n\r\n" % len(body) + body


class Script:
    """The engine: the test accepts its connections, reads its requests and writes its answers"""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.listener.settimeout(30)

    def accept(self) -> Line:
        connection, _ = self.listener.accept()
        connection.settimeout(30)
        return Line(connection)


class Line:
    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def request(self) -> bytes:
        """The next one, whose body is `abc` or nothing"""
        data = b""
        while not (data.endswith(b"\r\n\r\nabc") or (data.startswith(b"GET") and data.endswith(b"\r\n\r\n"))):
            more = self.socket.recv(65536)
            assert more, data
            data += more
        return data

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def close(self) -> None:
        self.socket.close()

    def is_closed(self) -> bool:
        return self.socket.recv(65536) == b""


class Worker:
    """Its application and its shortcut"""

    def __init__(self, path: Path, live: Engine) -> None:
        self.asked = 0
        self._origin = Origin("", path)
        self._live = live
        self._relay: Relay | None = None

    def relay(self) -> Relay:
        if self._relay is None:
            self._relay = Relay(self._origin, Watch(self._live))
        return self._relay

    def shortcut(self) -> Shortcut:
        return self.relay().shortcut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        await self.relay()(scope, receive, send)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Script]:
    script = Script(tmp_path / "engine")
    with script.listener:
        yield script


@pytest.fixture
def worker(tmp_path: Path, live: Engine) -> Worker:
    return Worker(tmp_path / "engine", live)


@pytest.fixture
def server(worker: Worker) -> Iterator[Served]:
    with served(worker, shortcut=worker.shortcut) as server:
        yield server


@contextmanager
def asked(server: Served, engine: Script, data: bytes = ASK) -> Iterator[tuple[Connection, Line]]:
    """A client and the engine's end, which has the request"""
    with server.connect() as client:
        client.send(data)
        line = engine.accept()
        with line.socket:
            line.request()
            yield client, line


def test_an_ordinary_request_takes_the_shortcut_again_and_again(server: Served, engine: Script, worker: Worker) -> None:
    with asked(server, engine) as (client, line):
        for number in range(3):
            line.send(answer(b"%d" % number))
            received = client.receive()
            assert (received.status, received.body) == (200, b"%d" % number)
            assert received.header("x-engine") == "it"
            assert received.header("date")
            assert received.header("connection") is None
            client.send(ASK)
            assert line.request().endswith(b"abc")
        line.send(answer())
        assert client.receive().body == b"ok"
    assert worker.asked == 0
    assert server.server.server_state.total_requests == 4


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /v2/m HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
        frame("POST", "/v2/%6d", body=b"abc"),
        frame("POST", "/v2/m", [("Connection", "close")], b"abc"),
        frame("POST", "/v2/m", [("Connection", "Upgrade"), ("Upgrade", "h2c")], b"abc"),
        frame("POST", "/v2/m", [("Connection", "x-secret"), ("X-Secret", "1")], b"abc"),
        frame("POST", "/v2/m", [("Expect", "100-continue")], b"abc"),
        frame("POST", "/v2/m", [("Transfer-Encoding", "chunked")]) + b"3\r\nabc\r\n0\r\n\r\n",
    ],
)
def test_what_is_not_ordinary_goes_through_the_application(server: Served, worker: Worker, request_: bytes) -> None:
    with server.connect() as client:
        client.send(request_)
        eventually(lambda: worker.asked == 1, "the application was asked")


def test_a_request_whose_body_comes_behind_its_head_takes_the_shortcut(
    server: Served, engine: Script, worker: Worker
) -> None:
    with asked(server, engine) as (client, line):
        line.send(answer())
        client.receive()
        before = worker.asked
        for piece in (ASK[:-3], b"ab", b"c"):
            client.send(piece)
        line.request()
        line.send(answer(b"again"))
        assert client.receive().body == b"again"
    assert worker.asked - before <= 1


def test_a_request_whose_body_is_late_goes_through_the_application(
    server: Served, engine: Script, worker: Worker
) -> None:
    with server.connect() as client:
        client.send(ASK[:-2])
        eventually(lambda: worker.asked == 1, "the application was asked")
        client.send(b"bc")
        line = engine.accept()
        with line.socket:
            line.request()
            line.send(answer())
            assert client.receive().body == b"ok"


def test_a_client_that_goes_away_within_its_body_has_asked_nothing(server: Served, worker: Worker) -> None:
    with server.connect() as client:
        client.send(ASK[:-2])
    server.until_nobody_is_connected()
    assert worker.asked <= 1


def test_an_answer_that_is_a_stream_is_taken_over(server: Served, engine: Script, worker: Worker) -> None:
    with asked(server, engine) as (client, line):
        line.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
        assert client._until(b"\r\n\r\n").endswith(b"transfer-encoding: chunked")
        line.send(b"1\r\nb\r\n0\r\n\r\n")
        assert client._chunks() == b"ab"
        assert worker.asked == 1
        client.send(ASK)
        line.request()
        line.send(answer())
        assert client.receive().body == b"ok"
    assert worker.asked == 1


@pytest.mark.parametrize("size", [3, 200_000])
def test_an_answer_in_pieces_is_whole(server: Served, engine: Script, size: int) -> None:
    whole = answer(bytes(size))
    with asked(server, engine) as (client, line):
        line.send(whole[:-2])
        # Whoever takes over must not lose what has come.
        line.send(whole[-2:])
        assert client.receive().body == bytes(size)


def test_what_takes_long_is_taken_over_and_asked_once(server: Served, engine: Script, worker: Worker) -> None:
    with asked(server, engine) as (client, line):
        eventually(lambda: worker.asked == 1, "the application was asked")
        line.send(answer())
        assert client.receive().body == b"ok"
        client.send(ASK)
        assert line.request().endswith(b"abc")
        line.send(answer(b"next"))
        assert client.receive().body == b"next"


def test_requests_behind_one_on_the_shortcut_are_answered_in_their_order(server: Served, engine: Script) -> None:
    with asked(server, engine) as (client, line):
        client.send(frame("GET", "/v2/second") + frame("GET", "/v2/third"))
        line.send(answer(b"first"))
        assert client.receive().body == b"first"
        for name in (b"second", b"third"):
            assert line.request().startswith(b"GET /v2/" + name)
            line.send(answer(name))
            assert client.receive().body == name


def test_requests_that_come_in_one_piece_are_answered_in_their_order(server: Served, engine: Script) -> None:
    with asked(server, engine, ASK + b"GET /v2/second") as (client, line):
        client.send(b" HTTP/1.1\r\n\r\n")
        line.send(answer(b"first"))
        assert client.receive().body == b"first"
        assert line.request().startswith(b"GET /v2/second")
        line.send(answer(b"second"))
        assert client.receive().body == b"second"


def test_rubbish_behind_a_request_on_the_shortcut_is_refused_behind_its_answer(server: Served, engine: Script) -> None:
    with asked(server, engine) as (client, line):
        client.send(b"rubbish\r\n\r\n")
        eventually(lambda: server.connections == 1, "it came")
        line.send(answer())
        assert client.receive().body == b"ok"
        assert client.is_closed()


def test_a_client_that_goes_away_frees_its_connection_to_the_engine(server: Served, engine: Script) -> None:
    with asked(server, engine) as (client, line):
        client.close()
        assert line.is_closed()
    server.until_nobody_is_connected()


@pytest.mark.parametrize("late", [False, True])
def test_an_engine_that_dies_under_a_request_makes_503(
    server: Served, engine: Script, worker: Worker, *, late: bool
) -> None:
    with asked(server, engine) as (client, line):
        if late:
            eventually(lambda: worker.asked == 1, "the application was asked")
        line.close()
        assert client.receive().status == 503
    assert worker.asked == 1


def test_a_connection_that_had_ended_is_not_asked(server: Served, engine: Script, worker: Worker) -> None:
    with asked(server, engine) as (client, line):
        line.send(answer())
        assert client.receive().body == b"ok"
        line.close()
        client.send(ASK)
        again = engine.accept()
        with again.socket:
            again.request()
            again.send(answer(b"again"))
            assert client.receive().body == b"again"
    assert worker.asked == 0


def test_what_an_engine_says_unasked_is_nobodys_answer(server: Served, engine: Script) -> None:
    with asked(server, engine) as (client, line):
        line.send(answer() + answer(b"smuggled"))
        assert client.receive().body == b"ok"
        client.send(ASK)
        again = engine.accept()
        with again.socket:
            again.request()
            again.send(answer(b"again"))
            assert client.receive().body == b"again"


def test_a_request_on_the_shortcut_is_answered_when_the_worker_ends(engine: Script, worker: Worker) -> None:
    with served(worker, shortcut=worker.shortcut) as server, asked(server, engine) as (client, line):
        server.server.should_exit = True
        eventually(lambda: worker.asked == 1, "the application was asked")
        line.send(answer())
        assert client.receive().body == b"ok"
        assert client.is_closed()


def echo(line: Line) -> None:
    """Answers with the path, until the connection ends"""
    with line.socket, suppress(OSError):
        while data := line.socket.recv(65536):
            line.send(answer(data.split(b" ")[1]))


def test_many_clients_get_their_own_answers(server: Served, engine: Script) -> None:
    lines: list[Line] = []
    threads: list[threading.Thread] = []
    clients = [server.connect() for _ in range(8)]
    try:
        for number, client in enumerate(clients):
            client.send(frame("GET", f"/v2/first/{number}"))
            lines.append(engine.accept())
        for line in lines:
            threads.append(threading.Thread(target=echo, args=[line]))
            threads[-1].start()
        for client in clients:
            client.receive()
        for turn in range(20):
            for number, client in enumerate(clients):
                client.send(frame("GET", f"/v2/{turn}/{number}"))
            for number, client in enumerate(clients):
                assert client.receive().body == b"/v2/%d/%d" % (turn, number)
    finally:
        for client in clients:
            client.close()
        for line in lines:
            with suppress(OSError):
                line.socket.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
