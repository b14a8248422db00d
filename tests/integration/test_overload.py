"""More work than a model can do: immediate errors, deadlines, and places that are given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer
from tests.gates import HELD, Gate
from tests.integration.occupied import (
    occupy,
    pending,
    slow_request,
    until_pending,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

FULL = "Exceeds maximum queue size"
EXPIRED = "Request timeout expired"


def test_a_full_queue_refuses_at_once(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository, extra=models.queue_policy("max_queue_size: 2"))
    server = start_server(repository)
    with occupy(server) as occupied, server.connect() as second, server.connect() as third:
        second.send(slow_request(0))
        until_pending(server, 2)
        third.send(slow_request(0, id="third"))
        response = third.receive()
        assert (response.status, response.error) == (503, f"[request id: third] {FULL}")
        assert response.header("retry-after") is not None
        assert not occupied.executing.has_answer()
        occupied.go_on()
        assert [occupied.executing.receive().status, occupied.waiting.receive().status] == [200, 200]
        assert second.receive().status == 200
        third.send(slow_request(0))
        assert third.receive().status == 200


def test_a_queue_full_of_bytes_refuses_at_once(repository: Path, start_server: StartServer) -> None:
    limit = 'parameters { key: "kushi.max_queue_bytes" value { string_value: "16" } }'
    models.write_gated(repository, extra=f"dynamic_batching {{ }} {limit}")
    server = start_server(repository)
    with (
        occupy(server) as occupied,
        server.connect() as second,
        server.connect() as third,
    ):
        second.send(slow_request(0))
        until_pending(server, 2)
        third.send(slow_request(0))
        response = third.receive()
        assert (response.status, response.error) == (503, f"[request id: <id_unknown>] {FULL}")
        assert not occupied.executing.has_answer()


def test_a_client_that_disconnects_frees_its_place(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository, extra=models.queue_policy("max_queue_size: 3"))
    server = start_server(repository)
    with occupy(server) as occupied:
        leaving = [server.connect() for _ in range(2)]
        for connection in leaving:
            connection.send(slow_request(0))
        until_pending(server, 3)
        for connection in leaving:
            connection.close()
        until_pending(server, 1)
        assert not occupied.executing.has_answer()
        with server.connect() as next_client:
            next_client.send(slow_request(0))
            occupied.go_on()
            assert next_client.receive().status == 200


def test_a_client_that_disconnects_while_its_request_executes_harms_nobody(
    repository: Path, start_server: StartServer
) -> None:
    models.write_gated(repository)
    server = start_server(repository)
    with occupy(server) as occupied:
        occupied.executing.close()
        occupied.go_on()
        assert occupied.waiting.receive().json()["id"] == "waiting"
    assert pending(server) == 0


def test_a_deadline_in_the_header_is_kept_in_the_queue(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository)
    server = start_server(repository)
    with occupy(server) as occupied, server.connect() as late:
        late.send(slow_request(0, headers=[("kushi-timeout-us", "1000")]))
        response = late.receive()
        assert (response.status, response.error) == (503, EXPIRED)
        assert not occupied.executing.has_answer(), "an expired request is answered when it expires"
        late.send(slow_request(0, headers=[("kushi-timeout-us", "600000000")]))
        occupied.go_on()
        assert late.receive().status == 200


@pytest.mark.parametrize("value", ["abc", "-5", "1.5", "", "99999999999999999999999"])
def test_a_deadline_that_is_no_number_is_refused(server: Server, value: str) -> None:
    headers, body = requests.body(Infer("add_sub", ADD_SUB_INPUTS))
    response = server.post(requests.path("add_sub"), body, [*headers, ("kushi-timeout-us", value)])
    assert response.status == 400
    assert "kushi-timeout-us" in response.error


def test_the_default_timeout_of_the_model_rejects(repository: Path, start_server: StartServer) -> None:
    policy = "default_timeout_microseconds: 400000 timeout_action: REJECT"
    models.write_gated(repository, extra=models.queue_policy(policy))
    server = start_server(repository)
    with Gate(repository) as gate, server.connect() as executing, server.connect() as waiting:
        executing.send(slow_request(HELD))
        gate.until_reached()
        waiting.send(slow_request(0))
        response = waiting.receive()
        assert (response.status, response.error) == (503, EXPIRED)
        assert not executing.has_answer()


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        ("default_timeout_microseconds: 60000000 allow_timeout_override: true", 503),
        ("default_timeout_microseconds: 60000000", 200),
        ("allow_timeout_override: true", 200),
        ("max_queue_size: 5", 200),
    ],
    ids=["override allowed", "override not allowed", "no default to override", "no timeout at all"],
)
def test_the_timeout_parameter_counts_only_where_the_model_allows_it(
    repository: Path, start_server: StartServer, policy: str, status: int
) -> None:
    models.write_gated(repository, extra=models.queue_policy(policy))
    server = start_server(repository)
    with occupy(server) as occupied, server.connect() as late:
        late.send(slow_request(0, parameters={"timeout": 1000}))
        if status == 200:
            # In the queue its time is over by then.
            until_pending(server, 2)
            occupied.go_on()
        assert late.receive().status == status


def test_a_timeout_larger_than_the_default_does_not_extend_it(repository: Path, start_server: StartServer) -> None:
    policy = "default_timeout_microseconds: 400000 allow_timeout_override: true"
    models.write_gated(repository, extra=models.queue_policy(policy))
    server = start_server(repository)
    with Gate(repository) as gate, server.connect() as executing, server.connect() as waiting:
        executing.send(slow_request(HELD))
        gate.until_reached()
        waiting.send(slow_request(0, parameters={"timeout": 600_000_000}))
        assert waiting.receive().status == 503
        assert not executing.has_answer()
