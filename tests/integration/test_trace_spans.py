"""Traces of requests as spans, for a collector of OpenTelemetry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest
from tritonclient import grpc, http

from tests import models
from tests.collector import Collector
from tests.integration.test_trace import COMPUTE, OVER_GRPC, OVER_HTTP, REQUEST, VALUES, write_nested
from tests.serving import GRPC_LINE, free_port, run_to_end
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CALLER: Final = "b7ad6b7169203331"
SAMPLED: Final = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=1"}
DOOR: Final = [*REQUEST, *COMPUTE, "REQUEST_END"]
TELLING: Final = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        texts = [request.trace().get_context() or "" for request in requests]
        answers = [np.array([[text]], dtype=object) for text in texts]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", answer)]) for answer in answers]
"""
TELLING_CONFIG: Final = """
backend: "python"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 16 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as opened:
        yield opened


def start(start_server: StartServer, repository: Path, url: str, *arguments: str, rate: int = 1) -> Server:
    return start_server(
        repository,
        *("--grpc-port=0", "--grpc-address=127.0.0.1", "--trace-config=mode=opentelemetry"),
        *(f"--trace-config=opentelemetry,url={url}", "--trace-config=opentelemetry,bsp_schedule_delay=50"),
        *("--trace-config=level=TIMESTAMPS", f"--trace-config=rate={rate}", *arguments),
    )


def ask(
    server: Server,
    headers: Mapping[str, str] | None = None,
    *,
    model: str = "add_sub",
    names: tuple[str, ...] = ("INPUT0", "INPUT1"),
) -> http.InferResult:
    inputs = [http.InferInput(name, [1, 16], "INT32") for name in names]
    for one in inputs:
        one.set_data_from_numpy(VALUES)
    with http.InferenceServerClient(f"127.0.0.1:{server.http[1]}") as client:
        return client.infer(model, inputs, request_id="r", headers=dict(headers or {}))


def ask_grpc(server: Server, headers: Mapping[str, str] | None = None) -> None:
    port = server.log.wait_for(GRPC_LINE, 30).group(1)
    inputs = [grpc.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for one in inputs:
        one.set_data_from_numpy(VALUES)
    with grpc.InferenceServerClient(f"127.0.0.1:{port}") as client:
        client.infer("add_sub", inputs, headers=dict(headers or {}))


def test_a_request_is_three_spans(start_server: StartServer, repository: Path, collector: Collector) -> None:
    models.write_add_sub(repository)
    resource = ("--trace-config=opentelemetry,resource=test.key=a=b", "--trace-resource=other=1")
    server = start(start_server, repository, collector.url, *resource)
    ask(server)
    root, model, compute = collector.wait_for(3)
    assert [one.name for one in (root, model, compute)] == ["InferRequest", "add_sub", "compute"]
    assert (root.parent, model.parent, compute.parent) == ("", root.id, model.id)
    assert len({one.trace for one in (root, model, compute)}) == 1
    assert (root.kind, model.kind) == (2, 1)
    assert root.events == [name for name in OVER_HTTP if name not in DOOR]
    assert (model.events, compute.events) == ([*REQUEST, "REQUEST_END"], COMPUTE)
    assert model.attributes == {
        "triton.model_name": "add_sub",
        "triton.model_version": 1,
        "triton.trace_id": 1,
        "triton.trace_parent_id": 0,
        "triton.request_id": "r",
    }
    assert root.resource == {"service.name": "triton-inference-server", "test.key": "a=b", "other": "1"}
    assert root.began <= model.began <= compute.began <= compute.ended <= model.ended <= root.ended
    settings = json.loads(server.get("/v2/trace/setting").body)
    assert (settings["trace_mode"], settings["url"], settings["bsp_max_queue_size"]) == (
        *("opentelemetry", collector.url),
        "2048",
    )
    assert "trace_file" not in settings


def test_spans_of_steps_and_of_what_a_model_asks_are_nested(
    start_server: StartServer, repository: Path, collector: Collector
) -> None:
    write_nested(repository)
    server = start(start_server, repository, collector.url)
    ask(server, model="nested", names=("IN",))
    spans = collector.wait_for(8)
    by_id = {span.id: span.name for span in spans}
    assert sorted((span.name, by_id.get(span.parent, "")) for span in spans) == [
        ("InferRequest", ""),
        ("add_sub", "asking"),
        ("add_sub", "nested"),
        ("asking", "nested"),
        ("compute", "add_sub"),
        ("compute", "add_sub"),
        ("compute", "asking"),
        ("nested", "InferRequest"),
    ]


@pytest.mark.parametrize("way", ["http", "grpc"])
def test_a_request_with_a_sampled_parent_is_traced_whatever_the_rate(
    way: str, start_server: StartServer, repository: Path, collector: Collector
) -> None:
    models.write_add_sub(repository)
    server = start(start_server, repository, collector.url, rate=0)
    do = ask if way == "http" else ask_grpc
    do(server)
    do(server, {**SAMPLED, "traceparent": f"00-{TRACE}-{CALLER}-00"})
    do(server, {"traceparent": "00-nothing"})
    do(server, SAMPLED)
    root, model, _ = collector.wait_for(3)
    assert (root.trace, root.parent, root.state) == (TRACE, CALLER, "vendor=1")
    assert (model.trace, model.parent) == (TRACE, root.id)
    events = OVER_HTTP if way == "http" else OVER_GRPC
    assert root.events == [name for name in events if name not in DOOR]
    server.stop()
    assert len(collector.spans) == 3


def test_a_python_model_reads_the_trace_that_it_is_part_of(
    start_server: StartServer, repository: Path, collector: Collector
) -> None:
    (repository / "telling" / "1").mkdir(parents=True)
    (repository / "telling" / "config.pbtxt").write_text(TELLING_CONFIG, encoding="utf-8")
    (repository / "telling" / "1" / "model.py").write_text(TELLING, encoding="utf-8")
    server = start(start_server, repository, collector.url, rate=0)
    assert ask(server, model="telling", names=("IN",)).as_numpy("OUT").tolist() == [[b""]]
    told = json.loads(ask(server, SAMPLED, model="telling", names=("IN",)).as_numpy("OUT").item())
    spans = {span.name: span for span in collector.wait_for(3)}
    assert told == {"traceparent": f"00-{TRACE}-{spans['telling'].id}-01", "tracestate": "vendor=1"}


def test_an_error_is_the_status_of_its_spans(start_server: StartServer, repository: Path, collector: Collector) -> None:
    models.write_add_sub(repository)
    server = start(start_server, repository, collector.url)
    with pytest.raises(Exception, match="expected 2 inputs"):
        ask(server, names=("INPUT0",))
    (root,) = collector.wait_for(1)
    assert "expected 2 inputs" in root.error


def test_spans_are_sent_together_and_those_that_are_left_at_the_end(
    start_server: StartServer, repository: Path, collector: Collector
) -> None:
    models.write_add_sub(repository)
    options = ("bsp_schedule_delay=600000", "bsp_max_export_batch_size=9")
    server = start(start_server, repository, collector.url, *(f"--trace-config=opentelemetry,{one}" for one in options))
    for _ in range(4):
        ask(server)
    collector.wait_for(9)
    server.stop()
    assert [count for _, count in collector.requests] == [9, 3]
    assert {path for path, _ in collector.requests} == {"/v1/traces"}


def test_a_collector_that_is_away_holds_no_request_and_is_told_of(start_server: StartServer, repository: Path) -> None:
    models.write_add_sub(repository)
    # each attempt to send them takes 3.5 s, in which no more than three requests find room
    options = [f"--trace-config=opentelemetry,bsp_max_{bound}=9" for bound in ("queue_size", "export_batch_size")]
    server = start(start_server, repository, f"http://127.0.0.1:{free_port()}/v1/traces", *options)
    for _ in range(300):
        ask(server)
    assert server.stop() == 0
    text = server.log.text()
    assert "spans could not be sent to http://127.0.0.1" in text
    assert "spans were dropped: they came faster than the collector takes them" in text


def test_a_collector_that_has_no_time_is_asked_again(
    start_server: StartServer, repository: Path, collector: Collector
) -> None:
    models.write_add_sub(repository)
    server = start(start_server, repository, collector.url)
    collector.status = 503
    ask(server)
    eventually(lambda: len(collector.requests) >= 2, "a second attempt")
    collector.status = 200
    assert {span.name for span in collector.wait_for(3)} == {"InferRequest", "add_sub", "compute"}


def test_the_variables_of_opentelemetry_lead_to_the_collector(
    repository: Path, start_server: StartServer, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.write_add_sub(repository)
    for name, value in {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url.removesuffix("/v1/traces"),
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=very%20secret,tenant=a",
        "OTEL_SERVICE_NAME": "adders",
        "OTEL_RESOURCE_ATTRIBUTES": "zone=north",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }.items():
        monkeypatch.setenv(name, value)
    config = ("mode=opentelemetry", "level=TIMESTAMPS", "rate=1", "opentelemetry,resource=zone=south")
    server = start_server(repository, "--log-verbose=1", *(f"--trace-config={one}" for one in config))
    ask(server)
    spans = collector.wait_for(3)
    assert {(one.resource["service.name"], one.resource["zone"]) for one in spans} == {("adders", "south")}
    assert {path for path, _ in collector.requests} == {"/v1/traces"}
    for headers in collector.headers:
        assert (headers["api-key"], headers["tenant"]) == ("very secret", "a")
    settings = server.get("/v2/trace/setting").body
    assert b"secret" not in settings
    server.stop()
    assert "secret" not in server.log.text()


def test_a_header_that_cannot_be_sent_is_refused_without_its_value(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api key=secret")
    models.write_add_sub(repository)
    ended = run_to_end(f"--model-repository={repository}", "--trace-config=mode=opentelemetry", "--http-port=0")
    assert ended.returncode == 1
    assert "'api key' cannot be a header for the collector of traces, or has a wrong value" in ended.stdout
    assert "secret" not in ended.stdout
