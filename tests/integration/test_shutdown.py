"""The end of a server: everything accepted is answered, nothing new is taken, and the exit code says how it went."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output
from tests.integration.occupied import occupy, slow_request, until_pending
from tests.serving import DRAINING, STOP_S, Server
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Connection, Response

HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")]))
PATH = requests.path("add_sub")
STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"


def test_every_accepted_request_is_answered_and_the_exit_code_is_0(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository)
    server = start_server(repository)
    with occupy(server) as occupied:
        waiting = [server.connect() for _ in range(5)]
        for connection in waiting:
            connection.send(slow_request(1000))
        until_pending(server, 6)
        server.terminate()
        occupied.go_on()
        assert [connection.receive().status for connection in waiting] == [200] * 5
        assert occupied.executing.receive().status == 200
        assert occupied.waiting.receive().status == 200
        for connection in waiting:
            connection.close()
    assert server.wait() == 0


def test_a_server_that_drains_is_not_ready_and_refuses_new_work(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository)
    models.write_add_sub(repository)
    server = start_server(repository)
    with occupy(server) as occupied, server.connect() as early:
        assert early.ask("GET", "/v2/health/ready").status == 200
        server.terminate()
        eventually(lambda: early.ask("GET", "/v2/health/ready").status != 200, "readiness is false")
        refused = early.ask("POST", PATH, HEADERS, BODY)
        assert (refused.status, refused.error) == (503, f"[request id: <id_unknown>] {STOPPING}")
        exiting = early.ask("GET", "/v2/health/ready")
        assert (exiting.status, exiting.error) == (503, "Server exiting")
        assert not occupied.executing.has_answer()
        occupied.go_on()
        assert occupied.executing.receive().status == 200
        assert occupied.waiting.receive().status == 200
    assert server.wait() == 0


@dataclass
class Worker:
    """A client that asks until the server lets it go, and remembers what was not as it should be."""

    server: Server
    answered: threading.Semaphore
    wrong: list[Response] = field(default_factory=list)
    cut: list[bytes] = field(default_factory=list)

    def run(self) -> None:
        with self.server.connect() as connection:
            try:
                while self.ask(connection):
                    self.answered.release()
            except OSError:
                # A request that the server never read may meet a closed connection; an answer is never cut.
                self.cut.append(connection.buffer)

    def ask(self, connection: Connection) -> bool:
        response = connection.ask("POST", PATH, HEADERS, BODY)
        refused = response.status == 503 and STOPPING in response.error
        if response.status != 200 and not refused:
            self.wrong.append(response)
        return response.header("connection") != "close"


def test_under_load_no_answer_is_cut_and_none_is_wrong(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository)
    answered = threading.Semaphore(0)
    workers = [Worker(server, answered) for _ in range(8)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for _ in range(400):
        assert answered.acquire(timeout=30)
    server.terminate()
    assert server.wait() == 0
    for thread in threads:
        thread.join()
    assert [response for worker in workers for response in worker.wrong] == []
    assert [rest for worker in workers for rest in worker.cut if rest] == []


def test_idle_connections_do_not_keep_a_server_alive(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, "--exit-timeout-secs=20")
    idle: list[Connection] = [server.connect() for _ in range(20)]
    try:
        for connection in idle[:10]:
            assert connection.ask("GET", "/v2/health/live").status == 200
        for connection in idle[10:15]:
            connection.send(b"POST /v2/models/add_sub/infer HTTP/1.1\r\nContent-Le")
        assert server.stop() == 0
    finally:
        for connection in idle:
            connection.close()


def test_the_exit_timeout_ends_a_server_whose_work_does_not(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository)
    server = start_server(repository, "--exit-timeout-secs=1")
    with occupy(server):
        server.terminate()
        assert server.wait() != 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_either_signal_ends_an_idle_server_with_0(
    repository: Path, start_server: StartServer, number: signal.Signals
) -> None:
    models.write_add_sub(repository)
    server = start_server(repository)
    server.process.send_signal(number)
    assert server.wait() == 0
    assert "Traceback" not in server.log.text()


def test_a_signal_while_models_load_ends_the_server(repository: Path) -> None:
    for number in range(20):
        models.write_add_sub(repository, f"add_sub_{number}")
    server = Server(["--model-repository", str(repository), "--http-port=0", "--metrics-port=0"])
    try:
        server.terminate()
        assert server.wait() in (0, 1, -signal.SIGTERM)
        assert "Traceback" not in server.log.text()
    finally:
        if server.process.poll() is None:
            server.kill()


def test_a_hang_up_drains_and_leaves_no_socket(repository: Path, start_server: StartServer, tmp_path: Path) -> None:
    models.write_gated(repository)
    sockets = [tmp_path / "http.sock", tmp_path / "local.sock"]
    server = start_server(repository, f"--http-socket={sockets[0]}", f"--local-socket={sockets[1]}")
    with occupy(server) as occupied:
        server.process.send_signal(signal.SIGHUP)
        server.log.wait_for(DRAINING, STOP_S)
        occupied.go_on()
        assert occupied.executing.receive().status == 200
        assert occupied.waiting.receive().status == 200
    assert server.wait() == 0
    assert not any(socket.exists() for socket in sockets)
