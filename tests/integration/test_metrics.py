"""What the metrics have beside counters and gauges of all models, where a flag or a model asks for it"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.grpc import InferenceServerClient as GrpcClient

from runners import Client, Engine, EngineOptions, MetricsOptions
from tests import models
from tests.integration.grpc_doors import port_of
from tests.integration.occupied import occupy, slow_request, until_pending
from tests.integration.python_models import models as python_models
from tests.raw_http import fetch
from tests.serving import Server
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import Metric

    from tests.conftest import StartServer

FIRST_RESPONSES = "nv_inference_first_response_histogram_ms"
DURATIONS = ("request", "queue", "compute_input", "compute_infer", "compute_output")
CLASSIFIER = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "SCORES")) for request in requests]

    def answer(self, scores):
        best = scores.as_numpy().argmax(axis=1)
        words = np.array([[b"even" if one % 2 == 0 else b"odd"] for one in best], np.object_)
        values = {"PASSED": scores.as_numpy(), "BEST": best[:, None].astype(np.int64), "WORD": words}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in values.items()])
"""
CLASSIFIER_CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "SCORES" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [
  { name: "PASSED" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" },
  { name: "BEST" data_type: TYPE_INT64 dims: [ 1 ] },
  { name: "WORD" data_type: TYPE_STRING dims: [ 1 ] }
]
parameters { key: "kushi.monitor" value { string_value: "WORD, PASSED, BEST" } }
"""
ENSEMBLE = """
platform: "ensemble"
input [ { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "NUMBER" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "counting" model_version: -1
  input_map { key: "COUNT" value: "COUNT" } output_map { key: "NUMBER" value: "NUMBER" }
} ] }
"""


def families(page: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(page)}


def page_of(server: Server) -> dict[str, Metric]:
    return families(fetch(server.metrics_address, "GET", "/metrics").body.decode())


def values(family: Metric, **labels: str) -> dict[str, float]:
    """By the name of the sample, without that of the family, and by the labels that are not given"""
    found = {}
    for sample in family.samples:
        if labels.items() <= sample.labels.items():
            rest = {key: value for key, value in sample.labels.items() if key not in {*labels, "version"}}
            found[sample.name.removeprefix(family.name) + "".join(rest.values())] = sample.value
    return found


def count(number: int) -> np.ndarray:
    return np.array([number], np.int32)


def write_counting(repository: Path, extra: str = "") -> None:
    python_models.write(repository, "counting", python_models.COUNTING, python_models.COUNTING_CONFIG + extra)


def test_sums_of_latencies_can_be_left_out(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    found = page_of(start_server(repository, "--metrics-config=counter_latencies=false"))
    assert not [name for name in found if "duration_us" in name or "summary" in name]
    assert {"nv_inference_request_success", "nv_inference_request_failure", "nv_inference_count"} <= found.keys()


def test_summaries_have_the_quantiles_that_are_asked_for(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(
        repository, "--metrics-config=summary_latencies=true", "--metrics-config=summary_quantiles=0.1:0.01,0.75:0.01"
    )
    name = "nv_inference_{}_summary_us"
    before = values(page_of(server)[name.format("request")])
    assert before == {"_countadd_sub": 0, "_sumadd_sub": 0} | {
        key: pytest.approx(float("nan"), nan_ok=True) for key in ("add_sub0.1", "add_sub0.75")
    }
    ones = np.ones((1, 16), np.int32)
    with Client(server.url) as client:
        for _ in range(50):
            client.infer("add_sub", {"INPUT0": ones, "INPUT1": ones})
    found = page_of(server)
    (entry,) = server.get("/v2/models/add_sub/stats").json()["model_stats"]
    for part in DURATIONS:
        family = found[name.format(part)]
        told = values(family, model="add_sub")
        assert (family.type, told["_count"], set(told)) == ("summary", 50, {"_count", "_sum", "0.1", "0.75"})
        assert 0 <= told["0.1"] <= told["0.75"]
        ns = entry["inference_stats"]["success" if part == "request" else part]["ns"]
        # each is counted in whole microseconds
        assert ns / 1000 - 50 <= told["_sum"] <= ns / 1000
    assert values(found[name.format("request")], model="add_sub")["0.1"] > 0


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        ("", ("100", "500", "2000", "5000", "+Inf")),
        ("buckets: [ -1, 0.0, 1, 2.5 ]", ("-1", "0", "1", "2.5", "+Inf")),
    ],
)
def test_first_responses_of_decoupled_models_are_a_histogram(
    repository: Path, start_server: StartServer, buckets: str, expected: tuple[str, ...]
) -> None:
    control = f'metric_identifier {{ family: "{FIRST_RESPONSES}" }} histogram_options {{ {buckets} }}'
    write_counting(repository, f"model_metrics {{ metric_control {{ {control} }} }}" if buckets else "")
    (repository / "pipeline" / "1").mkdir(parents=True)
    (repository / "pipeline" / "config.pbtxt").write_text(ENSEMBLE)
    models.write_add_sub(repository)
    server = start_server(repository, "--metrics-config", "histogram_latencies=true")
    with Client(f"grpc://127.0.0.1:{port_of(server)}") as client:
        for number in (3, 1, 0):
            assert len([*client.stream("pipeline", {"COUNT": count(number)})]) == number
    family = page_of(server)[FIRST_RESPONSES]
    assert {sample.labels["model"] for sample in family.samples} == {"counting", "pipeline"}
    told = values(family, model="counting")
    assert tuple(key.removeprefix("_bucket") for key in told if key.startswith("_bucket")) == expected
    # a request without a response has no first one
    assert (told["_count"], told["_bucket+Inf"]) == (2, 2)
    assert told["_sum"] == int(told["_sum"])


def test_there_is_no_histogram_unless_it_is_asked_for(repository: Path, start_server: StartServer) -> None:
    write_counting(repository)
    assert FIRST_RESPONSES not in page_of(start_server(repository))


def test_statistics_tell_of_each_response_of_a_decoupled_model(repository: Path, start_server: StartServer) -> None:
    write_counting(repository)
    server = start_server(repository)
    assert server.get("/v2/models/counting/stats").json()["model_stats"][0]["response_stats"] == {}
    with GrpcClient(f"127.0.0.1:{port_of(server)}") as client:
        with Client(f"grpc://127.0.0.1:{port_of(server)}") as asking:
            for number in (2, 1):
                assert len([*asking.stream("counting", {"COUNT": count(number)})]) == number
        over_grpc = client.get_inference_statistics("counting", as_json=True)["model_stats"][0]["response_stats"]
    told = server.get("/v2/models/counting/stats").json()["model_stats"][0]["response_stats"]
    counts = {number: {part: one["count"] for part, one in row.items() if one["count"]} for number, row in told.items()}
    sent = {"compute_infer": 2, "compute_output": 2, "success": 2}
    assert counts == {
        "0": sent,
        "1": {"compute_infer": 1, "compute_output": 1, "success": 1, "empty_response": 1},
        "2": {"empty_response": 1},
    }
    assert told["0"]["compute_infer"]["ns"] == told["0"]["success"]["ns"] > 0
    for number, row in told.items():
        for part, one in row.items():
            same = over_grpc[number][part]
            assert (int(same.get("count", 0)), int(same.get("ns", 0))) == (one["count"], one["ns"])


def test_tags_of_a_model_are_labels_of_its_metrics(repository: Path, start_server: StartServer) -> None:
    extra = 'metric_tags { key: "team" value: "a \\"b\\"" } metric_tags { key: "cost_center" value: "7" }'
    models.write_add_sub(repository, extra=extra)
    models.write_add_sub(repository, name="plain")
    found = page_of(start_server(repository))
    tagged = {"_team": 'a "b"', "_cost_center": "7"}
    for name in ("nv_inference_request_success", "nv_inference_pending_request_count", "nv_inference_request_failure"):
        for sample in found[name].samples:
            own = {key: value for key, value in sample.labels.items() if key.startswith("_")}
            assert own == (tagged if sample.labels["model"] == "add_sub" else {})


def test_monitored_outputs_count_their_classes(repository: Path) -> None:
    python_models.write(repository, "classifier", CLASSIFIER, CLASSIFIER_CONFIG)
    (repository / "classifier" / "labels.txt").write_text("cat\ndog\n")
    with Engine(repository) as engine:
        scores = np.array([[0.7, 0.2, 0.1], [0.0, 0.0, 1.0], [0.05, 0.95, 0.0]], np.float32)
        engine.infer("classifier", {"SCORES": scores})
        engine.infer("classifier", {"SCORES": scores[:1]})
        # the values are monitored, not the classes that this client asks for
        engine.infer("classifier", {"SCORES": np.array([[np.nan, 0, 0]], np.float32)}, outputs=["PASSED"])
        found = families(engine.get_metrics())
    classes = found["kushi_prediction_classes"]
    of = {output: values(classes, model="classifier", output=output) for output in ("PASSED", "BEST", "WORD")}
    assert of == {
        "PASSED": {"_totalcat": 2, "_totaldog": 1, "_total2": 1, "_totalNaN": 1},
        "BEST": {"_total0": 2, "_total1": 1, "_total2": 1},
        "WORD": {"_totaleven": 3, "_totalodd": 1},
    }
    confidence = values(found["kushi_prediction_confidence"], model="classifier", output="PASSED")
    assert confidence["_count"] == 4
    assert confidence["_sum"] == pytest.approx(0.7 + 1 + 0.95 + 0.7)
    assert [confidence[f"_bucket{bound}"] for bound in ("0.6", "0.7", "0.95", "1")] == [0, 2, 3, 4]


def test_warm_up_is_not_counted(repository: Path) -> None:
    sample = """
model_warmup { name: "w" count: 3 batch_size: 1
  inputs { key: "SCORES" value { data_type: TYPE_FP32 dims: [ 3 ] zero_data: true } } }
"""
    python_models.write(repository, "classifier", CLASSIFIER, CLASSIFIER_CONFIG + sample)
    (repository / "classifier" / "labels.txt").write_text("")
    options = EngineOptions(metrics=MetricsOptions(summary_latencies=True))
    with Engine(repository, options=options) as engine:
        found = families(engine.get_metrics())
    assert found["kushi_prediction_classes"].samples == []
    assert values(found["nv_inference_request_summary_us"], model="classifier")["_count"] == 0


def test_the_age_of_the_queue_and_the_sizes_of_batches_are_told(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository)
    server = start_server(repository)
    with occupy(server) as occupied, server.connect() as connection:
        connection.send(slow_request(0))
        until_pending(server, 2)
        ages = [values(page_of(server)["kushi_queue_age_seconds"], model="slow")[""] for _ in range(2)]
        assert 0 < ages[0] < ages[1] < 60
        occupied.go_on()
        assert connection.receive().status == 200
    found = page_of(server)
    assert values(found["kushi_queue_age_seconds"], model="slow")[""] == 0
    sizes = values(found["kushi_batch_size"], model="slow")
    executions = values(found["nv_inference_exec_count"], model="slow")["_total"]
    assert (sizes["_count"], sizes["_sum"]) == (executions, values(found["nv_inference_count"], model="slow")["_total"])


def test_what_is_open_is_told_door_by_door(repository: Path, start_server: StartServer) -> None:
    write_counting(repository)
    server = start_server(repository, f"--local-socket={repository.parent}/local")

    def opened() -> tuple[dict[str, float], dict[str, float]]:
        found = page_of(server)
        return values(found["kushi_open_connections"]), values(found["kushi_open_streams"])

    def at_doors(http: int, grpc: int, local: int, *, streams: int) -> bool:
        connections, told = opened()
        here = {"http": http, "grpc": grpc, "local": local}
        return here.items() <= connections.items() and told["grpc"] == streams

    assert set(opened()[0]) == {"http", "grpc", "local", "metrics"}
    local = Client(f"unix://{repository.parent}/local")
    with local, Client(f"grpc://127.0.0.1:{port_of(server)}") as client:
        assert local.is_server_live()
        answers = client.stream("counting", {"COUNT": count(500)})
        next(answers)
        with server.connect() as connection:
            assert connection.ask("GET", "/v2/health/live").status == 200
            eventually(lambda: at_doors(1, 1, 1, streams=1), "an open connection of each kind")
        answers.close()
        eventually(lambda: at_doors(0, 1, 1, streams=0), "the stream has ended")
    eventually(lambda: at_doors(0, 0, 0, streams=0), "all have left")


def test_requests_without_room_are_counted(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, "--max-inflight-bytes=100000")
    head = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 16], "data": [1] * 16}]}
    with server.connect() as holder:
        begun = b"POST /v2/models/add_sub/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 90000\r\n\r\n" + b" " * 80000
        holder.send(begun)
        eventually(lambda: values(page_of(server)["kushi_inflight_bytes"])[""] > 0, "half a body")
        body = json.dumps(head).encode().ljust(60_000)
        assert fetch(server.http, "POST", "/v2/models/add_sub/infer", body=body).status == 503
    assert values(page_of(server)["kushi_shed_requests"])["_total"] == 1


def test_an_event_stream_is_an_open_stream_of_http(repository: Path, start_server: StartServer) -> None:
    write_counting(repository)
    server = start_server(repository)
    body = b'{"COUNT": 100000000}'
    head = b"POST /v2/models/counting/generate_stream HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)

    def streams() -> float:
        return values(page_of(server)["kushi_open_streams"])["http"]

    with server.connect() as connection:
        connection.send(head + body)
        eventually(lambda: streams() == 1, "an open stream")
    eventually(lambda: streams() == 0, "its client has left")
