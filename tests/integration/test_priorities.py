"""Priority levels and their queue policies, while the only instance of the model is busy."""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tritonclient.http

from runners import Client, Engine, Result
from tests import models
from tests.gates import HELD, Gate
from tests.integration.occupied import (
    occupy,
    send_behind_another,
    slow_request,
    until_pending,
)
from tests.serving import Server, labelled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import StartServer

STEPS = np.zeros((1, 1), np.int64)


def levels(policies: str = "") -> str:
    return f"dynamic_batching {{ priority_levels: 2 default_priority_level: 2 {policies} }}"


def policy(level: int, text: str) -> str:
    return f"priority_queue_policy {{ key: {level} value {{ {text} }} }}"


def address(server: Server) -> str:
    host, port = server.http
    return f"{host}:{port}"


def ask_raw(server: Server, _: str) -> None:
    with server.connect() as connection:
        connection.send(slow_request(0, parameters={"priority": 1}))
        assert connection.receive().status == 200


def ask_with_tritonclient(server: Server, _: str) -> None:
    given = tritonclient.http.InferInput("STEPS", [1, 1], "INT64")
    given.set_data_from_numpy(STEPS)
    with tritonclient.http.InferenceServerClient(address(server), network_timeout=30) as client:
        client.infer("slow", [given], priority=1)


def ask_over_http(server: Server, _: str) -> None:
    with Client(f"http://{address(server)}") as client:
        client.infer("slow", STEPS, priority=1, deadline=30)


def ask_over_the_local_door(_: Server, path: str) -> None:
    with Client(f"unix://{path}") as client:
        client.infer("slow", STEPS, priority=1, deadline=30)


@pytest.mark.parametrize("ask", [ask_raw, ask_with_tritonclient, ask_over_http, ask_over_the_local_door])
def test_a_high_priority_overtakes_what_waits(
    repository: Path, start_server: StartServer, ask: Callable[[Server, str], None]
) -> None:
    models.write_gated(repository, extra=levels())
    with tempfile.TemporaryDirectory(prefix="kushi-") as folder:
        server = start_server(repository, f"--local-socket={folder}/door")
        with occupy(server) as occupied, send_behind_another(server, slow_request(HELD)) as low:
            until_pending(server, 2)
            with ThreadPoolExecutor(1) as threads:
                asking = threads.submit(ask, server, f"{folder}/door")
                until_pending(server, 3)
                occupied.go_on()
                # In the order of arrival it would wait for the one that is held.
                asking.result()
            assert occupied.executing.receive().status == 200
            assert occupied.waiting.receive().status == 200
            assert not low.has_answer()


def test_a_high_priority_overtakes_in_an_engine_too(repository: Path) -> None:
    models.write_gated(repository, extra=levels())

    async def answered(engine: Engine) -> list[str]:
        order: list[str] = []

        def ask(name: str, steps: int, priority: int) -> asyncio.Future[Result]:
            asked = engine.async_infer("slow", np.array([[steps]]), priority=priority)
            asked.add_done_callback(lambda _: order.append(name))
            return asked

        with Gate(repository) as gate:
            executing = ask("executing", HELD, 0)
            await asyncio.to_thread(gate.until_reached)
            later = [ask("low", 0, 2), ask("default", 0, 0), ask("beyond", 0, 3), ask("high", 0, 1)]
            assert not executing.done()
            gate.let_through()
            await asyncio.gather(executing, *later)
        return order

    with Engine(repository) as engine:
        assert asyncio.run(answered(engine)) == ["executing", "high", "low", "default", "beyond"]


def test_a_request_that_is_delayed_lets_others_of_its_level_pass(repository: Path, start_server: StartServer) -> None:
    delay = "default_timeout_microseconds: 600000000 allow_timeout_override: true timeout_action: DELAY"
    models.write_gated(repository, extra=models.queue_policy(delay))
    server = start_server(repository)
    delayed_request = slow_request(HELD, parameters={"timeout": 1})
    with (
        occupy(server) as occupied,
        send_behind_another(server, delayed_request) as delayed,
        send_behind_another(server, slow_request(0)) as prompt,
    ):
        until_pending(server, 3)
        occupied.go_on()
        assert occupied.executing.receive().status == 200
        assert occupied.waiting.receive().status == 200
        assert prompt.receive().status == 200
        assert not delayed.has_answer()


def test_a_delayed_request_is_answered_when_nothing_else_waits(repository: Path, start_server: StartServer) -> None:
    delay = "default_timeout_microseconds: 1 timeout_action: DELAY"
    models.write_gated(repository, extra=models.queue_policy(delay))
    with occupy(start_server(repository)) as occupied:
        occupied.go_on()
        assert occupied.executing.receive().status == 200
        assert occupied.waiting.receive().status == 200


def test_each_level_refuses_by_its_own_size(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository, extra=levels(policy(2, "max_queue_size: 1")))
    server = start_server(repository)
    with occupy(server) as occupied, server.connect() as low:
        low.send(slow_request(0))
        response = low.receive()
        assert (response.status, response.error) == (503, "[request id: <id_unknown>] Exceeds maximum queue size")
        assert response.header("retry-after") is not None
        with ThreadPoolExecutor(1) as threads:
            asking = threads.submit(ask_raw, server, "")
            until_pending(server, 2)
            occupied.go_on()
            asking.result()
    failed = {"model": "slow", "version": "1", "reason": "REJECTED"}
    assert labelled(server.metrics(), "nv_inference_request_failure", **failed) == 1


def test_a_low_level_rejects_after_its_own_timeout_while_nothing_moves(
    repository: Path, start_server: StartServer
) -> None:
    models.write_gated(repository, extra=levels(policy(2, "default_timeout_microseconds: 300000")))
    server = start_server(repository)
    with (
        Gate(repository) as gate,
        server.connect() as executing,
        server.connect() as high,
        server.connect() as low,
    ):
        executing.send(slow_request(HELD, parameters={"priority": 1}))
        gate.until_reached()
        high.send(slow_request(0, parameters={"priority": 1}))
        until_pending(server, 1)
        low.send(slow_request(0))
        response = low.receive()
        assert (response.status, response.error) == (503, "Request timeout expired")
        assert not high.has_answer()
        assert not executing.has_answer()
        failed = {"model": "slow", "version": "1", "reason": "REJECTED"}
        assert labelled(server.metrics(), "nv_inference_request_failure", **failed) == 1
