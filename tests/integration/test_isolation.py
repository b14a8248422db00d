"""A slow model keeps its own clients waiting and nobody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output
from tests.gates import HELD, Gate
from tests.integration.occupied import (
    occupy,
    send_behind_another,
    slow_request,
)
from tests.raw_http import frame

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")]))
PATH = requests.path("add_sub")
SUM = list(range(1, 17))


def served_beside(server: Server, count: int) -> None:
    with server.connect() as connection:
        for _ in range(count):
            assert connection.ask("POST", PATH, HEADERS, BODY).json()["outputs"][0]["data"] == SUM


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_hundred_requests_are_served_while_one_of_another_model_executes(
    repository: Path, start_server: StartServer, threads: str
) -> None:
    models.write_gated(repository)
    models.write_add_sub(repository)
    server = start_server(repository, f"--http-thread-count={threads}")
    with occupy(server) as occupied:
        served_beside(server, 100)
        assert not occupied.executing.has_answer()


def test_a_queue_full_of_slow_requests_delays_no_other_model(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository)
    models.write_add_sub(repository)
    server = start_server(repository)
    with occupy(server) as occupied:
        waiting = [server.connect() for _ in range(50)]
        for connection in waiting:
            connection.send(slow_request(0))
        served_beside(server, 100)
        assert not occupied.executing.has_answer()
        for connection in waiting:
            connection.close()


def test_health_and_metadata_answer_while_a_model_executes(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository)
    server = start_server(repository)
    with occupy(server) as occupied, server.connect() as connection:
        for path in ("/v2/health/ready", "/v2/models/slow/ready", "/v2/models/slow/stats", "/v2/models/slow/config"):
            assert connection.ask("GET", path).status == 200
        assert not occupied.executing.has_answer()


def test_two_instances_execute_two_requests_at_once(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository, instances=2, extra="")
    server = start_server(repository)
    with (
        Gate(repository) as gate,
        send_behind_another(server, slow_request(HELD)) as first,
        server.connect() as second,
    ):
        gate.until_reached()
        for _ in range(20):
            second.send(slow_request(10))
            assert second.receive().json()["outputs"][0]["data"] == [10]
        assert not first.has_answer()


def test_one_connection_keeps_a_model_busy_as_well_as_many_do(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository)
    with server.connect() as connection:
        connection.send(frame("POST", PATH, HEADERS, BODY) * 300)
        for _ in range(300):
            assert connection.receive().json()["outputs"][0]["data"] == SUM
