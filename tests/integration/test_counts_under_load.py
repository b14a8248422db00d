"""Under load at every door at once, the metrics equal the statistics, and both equal what the clients counted."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from tritonclient.grpc import InferenceServerClient as GrpcClient
from tritonclient.utils import InferenceServerException

from runners import Client
from runners.errors import KushiError
from tests.integration.grpc_doors import port_of
from tests.integration.python_models import models as python_models
from tests.integration.test_grpc import array_input
from tests.integration.test_metrics import FIRST_RESPONSES, page_of, values, write_counting
from tests.raw_http import frame
from tests.serving import Server
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

CALLS = 60
FAILING = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "X").as_numpy()) for request in requests]

    def answer(self, x):
        if (x < 0).any():
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("negative"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x % 3)])
"""
FAILING_CONFIG = """
backend: "python"
max_batch_size: 8
input { name: "X" data_type: TYPE_INT32 dims: 1 }
output { name: "Y" data_type: TYPE_INT32 dims: 1 }
dynamic_batching { }
parameters { key: "kushi.monitor" value { string_value: "Y" } }
"""


class Said:
    """What one client has heard"""

    def __init__(self) -> None:
        self.succeeded = self.failed = self.rows = 0
        self.classes: Counter[int] = Counter()

    def count(self, sent: np.ndarray, answer: np.ndarray | None) -> None:
        if answer is None:
            self.failed += 1
            return
        assert (answer == sent % 3).all()
        self.succeeded += 1
        self.rows += len(sent)
        self.classes.update(answer.ravel().tolist())


def inputs(worker: int) -> list[np.ndarray]:
    """Of one to three rows; each seventh fails."""
    numbers = range(worker, worker + CALLS)
    return [np.full((1 + number % 3, 1), -1 if number % 7 == 0 else number, np.int32) for number in numbers]


def over_http(server: Server, worker: int, said: Said) -> None:
    with server.connect() as connection:
        for x in inputs(worker):
            tensor = {"name": "X", "datatype": "INT32", "shape": [*x.shape], "data": x.ravel().tolist()}
            body = json.dumps({"inputs": [tensor]}).encode()
            connection.send(frame("POST", "/v2/models/failing/infer", [], body))
            answer = connection.receive("POST")
            outputs = json.loads(answer.body)["outputs"][0]["data"] if answer.status == 200 else None
            said.count(x, outputs and np.array(outputs, np.int32).reshape(x.shape))


def over_grpc(server: Server, worker: int, said: Said) -> None:
    with GrpcClient(f"127.0.0.1:{port_of(server)}") as client:
        for x in inputs(worker):
            answer = None
            with suppress(InferenceServerException):
                answer = client.infer("failing", [array_input("X", "INT32", x)]).as_numpy("Y")
            said.count(x, answer)


def by_client(url: str, worker: int, said: Said) -> None:
    with Client(url) as client:
        for x in inputs(worker):
            answer = None
            with suppress(KushiError):
                answer = client.infer("failing", {"X": x})["Y"]
            said.count(x, answer)


def in_streams(url: str, worker: int) -> Counter[int]:
    """How many requests had how many responses"""
    heard: Counter[int] = Counter()
    with Client(url) as client:
        for number in range(worker, worker + CALLS // 2):
            taken = [*client.stream("counting", {"COUNT": np.array([number % 5], np.int32)})]
            assert len(taken) == number % 5
            heard[number % 5] += 1
    return heard


def in_events(server: Server, worker: int) -> Counter[int]:
    heard: Counter[int] = Counter()
    with server.connect() as connection:
        for number in range(worker, worker + CALLS // 2):
            body = b'{"COUNT": %d}' % (number % 5)
            connection.send(frame("POST", "/v2/models/counting/generate_stream", [], body))
            assert connection.receive("POST").body.count(b"data: ") == number % 5
            heard[number % 5] += 1
    return heard


def test_the_counts_are_the_clients(repository: Path, start_server: StartServer) -> None:
    python_models.write(repository, "failing", FAILING, FAILING_CONFIG)
    write_counting(repository)
    server = start_server(
        repository,
        f"--local-socket={repository.parent}/local",
        "--metrics-config=histogram_latencies=true",
        "--metrics-config=summary_latencies=true",
    )
    local, grpc = f"unix://{repository.parent}/local", f"grpc://127.0.0.1:{port_of(server)}"
    said = [Said() for _ in range(5)]
    with ThreadPoolExecutor(8) as pool:
        unary = [
            pool.submit(over_http, server, 0, said[0]),
            pool.submit(over_grpc, server, 1, said[1]),
            *(pool.submit(by_client, url, 2 + at, said[2 + at]) for at, url in enumerate((local, grpc, server.url))),
        ]
        streams = [pool.submit(in_streams, grpc, 0), pool.submit(in_events, server, 1)]
        for done in unary:
            done.result()
        heard = sum((done.result() for done in streams), Counter[int]())

    succeeded, failed = sum(one.succeeded for one in said), sum(one.failed for one in said)
    rows = sum(one.rows for one in said)
    assert (succeeded + failed, failed > 0) == (5 * CALLS, True)
    statistics = {entry["name"]: entry for entry in server.get("/v2/models/stats").json()["model_stats"]}
    found = page_of(server)

    def metric(name: str, model: str, **labels: str) -> float:
        (value,) = (
            sample.value
            for sample in found[name].samples
            if sample.name in {name, f"{name}_total"} and labels.items() | {("model", model)} <= sample.labels.items()
        )
        return value

    entry = statistics["failing"]
    counted = (entry["inference_stats"]["success"]["count"], entry["inference_stats"]["fail"]["count"])
    assert counted == (succeeded, failed)
    assert entry["inference_count"] == rows
    assert metric("nv_inference_request_success", "failing") == succeeded
    assert (
        metric("nv_inference_request_failure", "failing", reason="OTHER")
        + metric("nv_inference_request_failure", "failing", reason="BACKEND")
        == failed
    )
    assert metric("nv_inference_count", "failing") == rows
    assert metric("nv_inference_exec_count", "failing") == entry["execution_count"]
    assert values(found["nv_inference_request_summary_us"], model="failing")["_count"] == succeeded
    sizes = values(found["kushi_batch_size"], model="failing")
    assert (
        sizes["_count"]
        == entry["execution_count"]
        == sum(batch["compute_infer"]["count"] for batch in entry["batch_stats"])
    )
    classes = sum((one.classes for one in said), Counter[int]())
    assert values(found["kushi_prediction_classes"], model="failing", output="Y") == {
        f"_total{name}": times for name, times in classes.items()
    }

    requests = sum(heard.values())
    entry = statistics["counting"]
    assert entry["inference_stats"]["success"]["count"] == requests == CALLS
    for number in range(5):
        row = entry["response_stats"][str(number)]
        longer = sum(times for length, times in heard.items() if length > number)
        assert (row["success"]["count"], row["empty_response"]["count"]) == (longer, heard[number])
    with_some = requests - heard[0]
    assert values(found[FIRST_RESPONSES], model="counting")["_count"] == with_some
    everything = {**values(found["kushi_queue_requests"]), **values(found["kushi_running_requests"])}
    assert set(everything.values()) == {0}
    eventually(lambda: values(page_of(server)["kushi_open_streams"]).get("grpc") == 0, "no stream is open")
