"""Requests that wait together are executed together, and only those that may be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests import models
from tests.contract import requests
from tests.contract.requests import Infer, Output, Tensor
from tests.integration.occupied import occupy, slow_request, until_pending
from tests.serving import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import onnx

    from tests.conftest import StartServer
    from tests.raw_http import Connection


def batches(server: Server, model: str) -> dict[int, int]:
    """How often each size of batch was executed."""
    (entry,) = server.get(f"/v2/models/{model}/stats").json()["model_stats"]
    return {batch["batch_size"]: batch["compute_infer"]["count"] for batch in entry["batch_stats"]}


def write_slow_batched(repository: Path, extra: str = "dynamic_batching { }") -> None:
    models.write_gated(repository, max_batch_size=8, extra=extra)


@pytest.fixture(scope="module")
def batching_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("batching_repository")
    write_slow_batched(repository)
    server = Server.start(repository)
    yield server
    server.stop()


def queue_up(server: Server, rows: list[int], already: int = 1) -> list[Connection]:
    """Sends one request after the other, each when the one before stands in the queue."""
    waiting = []
    for position, count in enumerate(rows):
        connection = server.connect()
        connection.send(slow_request(position, rows=count))
        until_pending(server, already + position + 1)
        waiting.append(connection)
    return waiting


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([1] * 7, [8]),
        ([1] * 10, [8, 3]),
        ([3, 3, 3], [7, 3]),
        ([8], [1, 8]),
        ([4, 4, 4], [5, 8]),
        ([7, 2], [8, 2]),
    ],
    ids=str,
)
def test_requests_that_wait_are_executed_in_batches_of_at_most_the_maximum(
    batching_server: Server, rows: list[int], expected: list[int]
) -> None:
    """One request of one row waits from the start: the rows listed come behind it."""
    server = batching_server
    with occupy(server) as occupied:
        before = batches(server, "slow")
        waiting = queue_up(server, rows)
        occupied.go_on()
        assert occupied.executing.receive().status == 200
        assert occupied.waiting.receive().status == 200
        for position, (connection, count) in enumerate(zip(waiting, rows, strict=True)):
            with connection:
                assert connection.receive().json()["outputs"][0]["data"] == [position] * count
    found = batches(server, "slow")
    grown = {size: count - before.get(size, 0) for size, count in found.items() if count != before.get(size, 0)}
    wanted: dict[int, int] = {1: 1}
    for size in expected:
        wanted[size] = wanted.get(size, 0) + 1
    assert grown == wanted


def test_without_a_batcher_requests_are_executed_one_by_one(repository: Path, start_server: StartServer) -> None:
    write_slow_batched(repository, extra="")
    server = start_server(repository)
    with occupy(server) as occupied:
        waiting = queue_up(server, [1, 2, 1])
        occupied.go_on()
        assert occupied.executing.receive().status == 200
        for connection in waiting:
            with connection:
                assert connection.receive().status == 200
    assert set(batches(server, "slow")) == {1, 2}


def test_a_queue_delay_gathers_requests_of_many_clients(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(
        repository, extra="dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 20000000 }"
    )
    server = start_server(repository)
    headers, body = requests.body(Infer("add_sub", requests.ADD_SUB_INPUTS))

    def one(_: int) -> int:
        return server.post(requests.path("add_sub"), body, headers).status

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(8))) == [200] * 8
    assert batches(server, "add_sub") == {8: 1}


def write_delayed_identity(repository: Path) -> None:
    text = models.config(
        "identity_int32",
        [("INPUT0", "INT32", [-1])],
        [("OUTPUT0", "INT32", [-1])],
        max_batch_size=8,
        extra="dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 100000 }",
    )
    identity: onnx.ModelProto = models.identity("INT32")
    models.write(repository, "identity_int32", identity, text)


def test_requests_of_different_shapes_never_share_a_batch(repository: Path, start_server: StartServer) -> None:
    write_delayed_identity(repository)
    server = start_server(repository)

    def one(number: int) -> None:
        values = np.full((1, 2 + number % 3), number, dtype=np.int32)
        tensor = Tensor("INPUT0", "INT32", values.shape, raw=values.tobytes())
        headers, body = requests.body(Infer("identity_int32", [tensor], [Output("OUTPUT0", binary=True)]))
        response = server.post(requests.path("identity_int32"), body, headers)
        assert response.status == 200, response.body
        assert response.infer_json["outputs"][0]["shape"] == list(values.shape)
        assert response.binary == values.tobytes()

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(one, range(12)))
    assert max(batches(server, "identity_int32")) <= 4
    assert sum(size * count for size, count in batches(server, "identity_int32").items()) == 12


def test_a_request_whose_data_fails_its_batch_fails_alone(repository: Path, start_server: StartServer) -> None:
    text = models.config(
        "gather",
        [("INDEX", "INT64", [1])],
        [("OUTPUT0", "INT32", [1])],
        max_batch_size=2,
        extra="dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 20000000 }",
    )
    models.write(repository, "gather", models.gather(), text)
    server = start_server(repository)

    def one(index: int) -> int:
        headers, body = requests.body(Infer("gather", [Tensor("INDEX", "INT64", (1, 1), values=[index])]))
        return server.post(requests.path("gather"), body, headers).status

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, [99, 3])) == [500, 200]
        assert list(pool.map(one, [2, 3])) == [200, 200]
    (entry,) = server.get("/v2/models/gather/stats").json()["model_stats"]
    assert entry["inference_stats"]["success"]["count"] == 3
    assert entry["inference_stats"]["fail"]["count"] == 1
    assert entry["execution_count"] == 2


def test_a_request_whose_data_changes_the_rows_of_its_batch_fails_alone(
    repository: Path, start_server: StartServer
) -> None:
    text = models.config(
        "above_zero",
        [("INPUT0", "INT32", [1])],
        [("OUTPUT0", "INT32", [1])],
        max_batch_size=2,
        extra="dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 20000000 }",
    )
    models.write(repository, "above_zero", models.above_zero(), text)
    server = start_server(repository)

    def one(value: int) -> int:
        headers, body = requests.body(Infer("above_zero", [Tensor("INPUT0", "INT32", (1, 1), values=[value])]))
        return server.post(requests.path("above_zero"), body, headers).status

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, [-1, 3])) == [500, 200]
        assert list(pool.map(one, [2, 3])) == [200, 200]
