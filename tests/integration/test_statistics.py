"""Statistics and metrics equal what the client itself counted, outcome by outcome."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests import models
from tests.contract import requests
from tests.contract.requests import Infer, Tensor
from tests.integration.occupied import occupy, pending, slow_request, until_pending
from tests.raw_http import Connection, fetch
from tests.serving import Server, labelled
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
DURATIONS = ("request", "queue", "compute_input", "compute_infer", "compute_output")


def statistics(server: Server, model: str) -> dict[str, Any]:
    (entry,) = server.get(f"/v2/models/{model}/stats").json()["model_stats"]
    assert isinstance(entry, dict)
    return entry


@dataclass
class Counted:
    """What one model did, as one of the two pages tells it."""

    success: int
    failure: int
    inferences: int
    executions: int

    @classmethod
    def from_statistics(cls, server: Server, model: str) -> Counted:
        entry = statistics(server, model)
        return cls(
            entry["inference_stats"]["success"]["count"],
            entry["inference_stats"]["fail"]["count"],
            entry["inference_count"],
            entry["execution_count"],
        )

    @classmethod
    def from_metrics(cls, server: Server, model: str) -> Counted:
        page = server.metrics()

        def value(name: str, **labels: str) -> int:
            return int(labelled(page, name, model=model, version="1", **labels))

        return cls(
            value("nv_inference_request_success"),
            sum(value("nv_inference_request_failure", reason=reason) for reason in REASONS),
            value("nv_inference_count"),
            value("nv_inference_exec_count"),
        )


def failures(server: Server, model: str) -> dict[str, int]:
    page = server.metrics()
    name = "nv_inference_request_failure"
    return {reason: int(labelled(page, name, model=model, version="1", reason=reason)) for reason in REASONS}


def gather(connection: Connection, index: int, rows: int = 1) -> int:
    headers, body = requests.body(Infer("gather", [Tensor("INDEX", "INT64", (rows, 1), values=[index] * rows)]))
    return connection.ask("POST", requests.path("gather"), headers, body).status


def test_success_and_failure_equal_the_clients_count(repository: Path, start_server: StartServer) -> None:
    models.write_gather(repository)
    server = start_server(repository)

    def work(worker: int) -> tuple[int, int, int]:
        succeeded = failed = rows_done = 0
        with server.connect() as connection:
            for number in range(100):
                rows = 1 + (number + worker) % 3
                status = gather(connection, number % 10, rows)
                assert status == 200
                succeeded += 1
                rows_done += rows
        return succeeded, failed, rows_done

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(work, range(4)))
    with server.connect() as connection:
        assert [gather(connection, 99) for _ in range(7)] == [500] * 7
        refused = connection.ask("POST", requests.path("gather"), body=b"{}")
        assert refused.status == 500
    succeeded = sum(count[0] for count in counts)
    rows = sum(count[2] for count in counts)
    counted = Counted.from_statistics(server, "gather")
    assert (counted.success, counted.failure, counted.inferences) == (succeeded, 7, rows)
    assert counted == Counted.from_metrics(server, "gather")
    assert failures(server, "gather") == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 7, "OTHER": 0}


def test_batch_statistics_add_up_to_executions_and_rows(repository: Path, start_server: StartServer) -> None:
    models.write_gather(repository)
    server = start_server(repository)

    def work(worker: int) -> int:
        with server.connect() as connection:
            return sum(gather(connection, worker, 1 + number % 4) == 200 for number in range(80))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 320
    entry = statistics(server, "gather")
    sizes = [batch["batch_size"] for batch in entry["batch_stats"]]
    runs = {batch["batch_size"]: batch["compute_infer"]["count"] for batch in entry["batch_stats"]}
    assert sizes == sorted(set(sizes))
    assert max(sizes) <= 8
    assert sum(runs.values()) == entry["execution_count"]
    assert sum(size * count for size, count in runs.items()) == entry["inference_count"] == 320 * 10 // 4
    for name in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert entry["inference_stats"][name]["count"] == 320
    assert entry["inference_stats"]["success"]["ns"] >= entry["inference_stats"]["compute_infer"]["ns"]
    assert entry["last_inference"] > 0


def test_rejected_and_cancelled_equal_the_clients_count(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository, extra=models.queue_policy("max_queue_size: 4"))
    server = start_server(repository)
    with occupy(server) as occupied:
        before = Counted.from_statistics(server, "slow")
        assert (before.failure, failures(server, "slow")["REJECTED"]) == (0, 0)
        leaving = [server.connect() for _ in range(3)]
        for connection in leaving:
            connection.send(slow_request(0))
        until_pending(server, 4)
        refused = 0
        for _ in range(5):
            with server.connect() as connection:
                connection.send(slow_request(0))
                refused += connection.receive().status == 503
        assert refused == 5
        for connection in leaving:
            connection.close()
        until_pending(server, 1)
        occupied.go_on()
        assert occupied.executing.receive().status == 200
        assert occupied.waiting.receive().status == 200
    counted = Counted.from_statistics(server, "slow")
    assert counted.success == before.success + 2
    assert counted.failure == 8
    assert counted == Counted.from_metrics(server, "slow")
    assert failures(server, "slow") == {"REJECTED": 5, "CANCELED": 3, "BACKEND": 0, "OTHER": 0}
    assert pending(server) == 0


def test_two_gauges_tell_how_many_requests_wait_and_run_in_the_whole_server(
    repository: Path, start_server: StartServer
) -> None:
    models.write_gated(repository)
    models.write_gated(repository, "other")
    server = start_server(repository)

    def gauges() -> tuple[float, float]:
        page = server.metrics()
        return page["kushi_queue_requests"], page["kushi_running_requests"]

    assert gauges() == (0, 0)
    with occupy(server):
        assert gauges() == (1, 1)
        with occupy(server, model="other"):
            assert gauges() == (2, 2)
        eventually(lambda: gauges()[0] == 1, "the place of who hung up is free")
    server.kill()


def test_the_two_gauges_are_there_before_any_model_is(repository: Path, start_server: StartServer) -> None:
    page = start_server(repository).metrics()
    assert (page["kushi_queue_requests"], page["kushi_running_requests"]) == (0, 0)


def test_expired_requests_count_as_rejected(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository)
    server = start_server(repository)
    with occupy(server) as occupied, server.connect() as late:
        late.send(slow_request(0, headers=[("kushi-timeout-us", "1000")]))
        assert late.receive().status == 503
        occupied.go_on()
        assert occupied.executing.receive().status == 200
    assert failures(server, "slow")["REJECTED"] == 1


def test_refused_requests_are_in_no_counter(repository: Path, start_server: StartServer) -> None:
    models.write_gather(repository)
    server = start_server(repository)
    with server.connect() as connection:
        for _ in range(5):
            assert connection.ask("POST", requests.path("gather"), body=b'{"inputs":[]}').status == 400
    assert Counted.from_statistics(server, "gather") == Counted(0, 0, 0, 0) == Counted.from_metrics(server, "gather")


def test_the_metrics_page_has_the_families_of_triton(server: Server) -> None:
    response = fetch(server.metrics_address, "GET", "/metrics")
    assert response.header("content-type") == "text/plain; charset=utf-8"
    page = response.body.decode()
    families = {
        "nv_inference_request_success": ("counter", "Number of successful inference requests, all batch sizes"),
        "nv_inference_request_failure": ("counter", "Number of failed inference requests, all batch sizes"),
        "nv_inference_count": ("counter", "Number of inferences performed (does not include cached requests)"),
        "nv_inference_exec_count": (
            "counter",
            "Number of model executions performed (does not include cached requests)",
        ),
        "nv_inference_request_duration_us": (
            "counter",
            "Cumulative inference request duration in microseconds (includes cached requests)",
        ),
        "nv_inference_queue_duration_us": (
            "counter",
            "Cumulative inference queuing duration in microseconds (includes cached requests)",
        ),
        "nv_inference_compute_input_duration_us": (
            "counter",
            "Cumulative compute input duration in microseconds (does not include cached requests)",
        ),
        "nv_inference_compute_infer_duration_us": (
            "counter",
            "Cumulative compute inference duration in microseconds (does not include cached requests)",
        ),
        "nv_inference_compute_output_duration_us": (
            "counter",
            "Cumulative inference compute output duration in microseconds (does not include cached requests)",
        ),
        "nv_inference_pending_request_count": (
            "gauge",
            "Instantaneous number of pending requests awaiting execution per-model.",
        ),
        "nv_model_load_duration_secs": ("gauge", "Model load time in seconds"),
        "kushi_queue_requests": ("gauge", "Requests that wait, of all models"),
        "kushi_running_requests": ("gauge", "Requests that are being executed, of all models"),
        "nv_cpu_utilization": ("gauge", "CPU utilization rate [0.0 - 1.0]"),
        "nv_cpu_memory_total_bytes": ("gauge", "CPU total memory (RAM), in bytes"),
        "nv_cpu_memory_used_bytes": ("gauge", "CPU used memory (RAM), in bytes"),
    }
    for name, (kind, text) in families.items():
        assert f"# HELP {name} {text}\n# TYPE {name} {kind}\n" in page, name
        assert re.search(rf"^{name}(\{{[^}}]*\}})? \S+$", page, re.MULTILINE), name


def test_every_series_of_a_model_is_there_before_its_first_request(
    standard_repository: Path, start_server: StartServer
) -> None:
    page = start_server(standard_repository).metrics()
    labels = {"model": "completed_fixed", "version": "1"}
    for name in ("nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count"):
        assert labelled(page, name, **labels) == 0
    for reason in REASONS:
        assert labelled(page, "nv_inference_request_failure", **labels, reason=reason) == 0
    for name in DURATIONS:
        assert labelled(page, f"nv_inference_{name}_duration_us", **labels) == 0
    assert labelled(page, "nv_model_load_duration_secs", **labels) > 0


def test_processor_and_memory_are_within_reason(server: Server) -> None:
    page = server.metrics()
    assert 0 <= page["nv_cpu_utilization"] <= 1
    assert 0 < page["nv_cpu_memory_used_bytes"] < page["nv_cpu_memory_total_bytes"]


def test_durations_grow_with_the_work(server: Server) -> None:
    def infer_us() -> float:
        return labelled(server.metrics(), "nv_inference_compute_infer_duration_us", model="slow", version="1")

    before = infer_us()
    with server.connect() as connection:
        connection.send(slow_request(5000))
        assert connection.receive().status == 200
    assert infer_us() - before > 1000


def test_the_metrics_port_refuses_other_verbs_and_paths_and_serves_many_clients(server: Server) -> None:
    assert fetch(server.metrics_address, "POST", "/metrics").status == 405
    for path in ("/", "/metrics/", "/v2/health/ready"):
        assert fetch(server.metrics_address, "GET", path).status == 404
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: fetch(server.metrics_address, "GET", "/metrics").status, range(64)))
    assert answers == [200] * 64
