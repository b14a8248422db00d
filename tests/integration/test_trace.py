"""Traces of requests: Triton's file, as the real tritonclient asks for it over HTTP and gRPC."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pytest
from tritonclient import grpc, http
from tritonclient.utils import InferenceServerException

from runners import Engine, EngineOptions, TraceOptions
from tests import models
from tests.integration.python_models.models import ASKING
from tests.serving import GRPC_LINE
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.conftest import StartServer
    from tests.serving import Server

REQUEST: Final = ["REQUEST_START", "QUEUE_START"]
COMPUTE: Final = ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
OVER_HTTP: Final = [
    *("HTTP_RECV_START", "HTTP_RECV_END", *REQUEST, *COMPUTE, "REQUEST_END"),
    *("INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END"),
]
OVER_GRPC: Final = [
    *("GRPC_WAITREAD_START", "GRPC_WAITREAD_END", *REQUEST, *COMPUTE, "REQUEST_END"),
    *("INFER_RESPONSE_COMPLETE", "GRPC_SEND_START", "GRPC_SEND_END"),
]
VALUES: Final = np.arange(16, dtype=np.int32).reshape(1, 16)

ENSEMBLE: Final = """
platform: "ensemble"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 16 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 16 ] } ]
ensemble_scheduling { step [
  { model_name: "add_sub" model_version: -1
    input_map [ { key: "INPUT0" value: "IN" }, { key: "INPUT1" value: "IN" } ]
    output_map { key: "OUTPUT0" value: "twice" } },
  { model_name: "asking" model_version: -1
    input_map [ { key: "INPUT0" value: "twice" }, { key: "INPUT1" value: "IN" } ]
    output_map { key: "OUTPUT1" value: "OUT" } }
] }
"""
ASKING_CONFIG: Final = """
backend: "python"
max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 16 ] }, { name: "INPUT1" data_type: TYPE_INT32 dims: [ 16 ] } ]
output [ { name: "OUTPUT1" data_type: TYPE_INT32 dims: [ 16 ] } ]
"""


def write_nested(repository: Path) -> None:
    """An ensemble of add_sub and of a Python model, which asks add_sub"""
    models.write_add_sub(repository)
    for name, config in (("nested", ENSEMBLE), ("asking", ASKING_CONFIG)):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config, encoding="utf-8")
    (repository / "asking" / "1" / "model.py").write_text(ASKING.replace("NAME", "add_sub"), encoding="utf-8")


class Traced:
    """A server whose traces go to a file, and its clients"""

    def __init__(self, start: StartServer, repository: Path, *arguments: str) -> None:
        self.file = repository.parent / "trace.json"
        self.server: Server = start(
            repository,
            "--grpc-port=0",
            "--grpc-address=127.0.0.1",
            f"--trace-config=triton,file={self.file}",
            *arguments,
        )
        port = self.server.log.wait_for(GRPC_LINE, 30).group(1)
        self.http = http.InferenceServerClient(f"127.0.0.1:{self.server.http[1]}", concurrency=8)
        self.grpc = grpc.InferenceServerClient(f"127.0.0.1:{port}")

    def ask(
        self,
        over: Literal["http", "grpc"] = "http",
        *,
        model: str = "add_sub",
        names: tuple[str, ...] = ("INPUT0", "INPUT1"),
        request_id: str = "",
    ) -> None:
        client: Any = self.http if over == "http" else self.grpc
        kind: Any = http if over == "http" else grpc
        inputs = [kind.InferInput(name, [1, 16], "INT32") for name in names]
        for one in inputs:
            one.set_data_from_numpy(VALUES)
        client.infer(model, inputs, request_id=request_id)

    def traces(self, *, suffix: str = "", count: int = 0) -> list[Trace]:
        """Those of one file: all once the server has ended, or as soon as there are so many"""
        path = Path(f"{self.file}{suffix}")
        if count:
            eventually(lambda: path.exists() and len(read(path)) >= count, f"{count} traces in {path.name}")
        else:
            self.server.stop()
        return read(path)


class Trace:
    """All objects of one id"""

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        (self.head,) = [one for one in objects if "model_name" in one]
        times = [one["timestamps"][0] for one in objects if "timestamps" in one]
        self.names = [one["name"] for one in times]
        self.ns = [one["ns"] for one in times]
        self.tensors = [(one["activity"], one["tensor"]) for one in objects if "tensor" in one]


def read(path: Path) -> list[Trace]:
    by_id: dict[int, list[dict[str, Any]]] = {}
    for one in json.loads(path.read_text(encoding="utf-8")):
        by_id.setdefault(one["id"], []).append(one)
    return [Trace(by_id[number]) for number in sorted(by_id)]


def test_a_request_over_each_protocol_is_traced_from_its_first_byte_to_its_last(
    start_server: StartServer, repository: Path
) -> None:
    models.write_add_sub(repository)
    traced = Traced(start_server, repository, "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1")
    traced.ask(request_id="first")
    traced.ask("grpc", request_id='"second"')
    first, second = traced.traces()
    assert first.head == {"id": 1, "model_name": "add_sub", "model_version": 1, "request_id": "first"}
    assert second.head == {"id": 2, "model_name": "add_sub", "model_version": 1, "request_id": '"second"'}
    assert (first.names, second.names) == (OVER_HTTP, OVER_GRPC)
    for one in (first, second):
        assert one.ns == sorted(one.ns)
        assert one.tensors == []


def test_tensors_are_traced_as_text(start_server: StartServer, repository: Path) -> None:
    models.write_add_sub(repository)
    traced = Traced(start_server, repository, "--trace-config=level=TENSORS", "--trace-config=rate=1")
    traced.ask()
    (trace,) = traced.traces()
    assert trace.names == []
    numbers = ",".join(map(str, range(16)))
    described = {"shape": "1,16", "dtype": "INT32"}
    sums = ",".join(str(2 * number) for number in range(16))
    assert trace.tensors == [
        ("TENSOR_QUEUE_INPUT", {"name": "INPUT0", "data": numbers, **described}),
        ("TENSOR_QUEUE_INPUT", {"name": "INPUT1", "data": numbers, **described}),
        ("TENSOR_BACKEND_OUTPUT", {"name": "OUTPUT0", "data": sums, **described}),
        ("TENSOR_BACKEND_OUTPUT", {"name": "OUTPUT1", "data": ",".join(["0"] * 16), **described}),
    ]


def test_steps_of_an_ensemble_and_what_a_python_model_asks_have_parents(
    start_server: StartServer, repository: Path
) -> None:
    write_nested(repository)
    traced = Traced(start_server, repository, "--trace-level=TIMESTAMPS", "--trace-rate=1")
    traced.ask(model="nested", names=("IN",), request_id="r")
    root, *below = traced.traces()
    assert (root.head["model_name"], root.head.get("parent_id")) == ("nested", None)
    assert root.names == [name for name in OVER_HTTP if name not in COMPUTE]
    heads = {(one.head["model_name"], one.head["parent_id"]): one for one in below}
    asking = heads["asking", root.head["id"]].head["id"]
    assert set(heads) == {("add_sub", root.head["id"]), ("asking", root.head["id"]), ("add_sub", asking)}
    assert all(one.names == [*REQUEST, *COMPUTE, "REQUEST_END"] for one in below)


def test_a_request_that_is_refused_is_traced_as_far_as_it_came(start_server: StartServer, repository: Path) -> None:
    models.write_add_sub(repository)
    traced = Traced(start_server, repository, "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1")
    with pytest.raises(InferenceServerException):
        traced.ask(names=("INPUT0",))
    (trace,) = traced.traces()
    assert trace.head == {"id": 1, "model_name": "add_sub", "model_version": -1}
    assert trace.names == ["HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_START", "HTTP_SEND_END"]


def test_a_stream_of_events_is_traced_to_its_end(start_server: StartServer, repository: Path) -> None:
    models.write_add_sub(repository)
    traced = Traced(start_server, repository, "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1")
    body = json.dumps({"INPUT0": list(range(16)), "INPUT1": list(range(16))}).encode()
    for path in ("generate", "generate_stream"):
        assert traced.server.post(f"/v2/models/add_sub/{path}", body).status in {200, 400}
    traced.grpc.start_stream(callback=lambda result, error: answered.append((result, error)))
    answered: list[Any] = []
    inputs = [grpc.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for one in inputs:
        one.set_data_from_numpy(VALUES)
    traced.grpc.async_stream_infer("add_sub", inputs)
    eventually(lambda: bool(answered), "an answer")
    traced.grpc.stop_stream()
    generated, streamed, last = traced.traces()
    for one in (generated, streamed):
        assert one.names[-2:] == ["HTTP_SEND_START", "HTTP_SEND_END"]
    assert last.names == OVER_GRPC


@pytest.mark.parametrize("settings", ["http", "grpc"])
def test_settings_of_all_and_of_one_model_count_at_once(
    settings: str, start_server: StartServer, repository: Path
) -> None:
    for name in ("add_sub", "other"):
        models.write_add_sub(repository, name)
    traced = Traced(start_server, repository)
    client: Any = traced.http if settings == "http" else traced.grpc
    options = {} if settings == "http" else {"as_json": True}
    off = client.get_trace_settings(**options)
    traced.ask()
    client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}, **options)
    traced.ask()
    client.update_trace_settings("add_sub", {"trace_level": ["OFF"]}, **options)
    traced.ask()
    traced.ask(model="other")
    client.update_trace_settings("add_sub", {"trace_level": None}, **options)
    traced.ask()
    client.update_trace_settings(settings={"trace_level": None, "trace_rate": None}, **options)
    traced.ask()
    assert client.get_trace_settings(**options) == off
    assert [one.head["model_name"] for one in traced.traces()] == ["add_sub", "other", "add_sub"]


def test_a_count_is_kept_and_told_and_its_traces_have_a_file_of_their_own(
    start_server: StartServer, repository: Path
) -> None:
    models.write_add_sub(repository)
    traced = Traced(start_server, repository, "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1")
    traced.ask()
    traced.http.update_trace_settings(settings={"trace_count": "5"})
    with ThreadPoolExecutor(8) as pool:
        for answered in [pool.submit(traced.ask, "grpc") for _ in range(40)]:
            answered.result()
    assert traced.http.get_trace_settings()["trace_count"] == "0"
    assert len(traced.traces(suffix=".0", count=5)) == 5
    with pytest.raises(InferenceServerException, match="Attempting to set invalid trace setting :"):
        traced.http.update_trace_settings(settings={"trace_rate": "2"})
    assert len(traced.traces()) == 1


def test_rate_and_log_frequency_are_exact_under_load(start_server: StartServer, repository: Path) -> None:
    models.write_add_sub(repository)
    traced = Traced(
        start_server,
        repository,
        *("--trace-config=level=TIMESTAMPS", "--trace-config=rate=4", "--trace-config=triton,log-frequency=10"),
    )
    with ThreadPoolExecutor(8) as pool:
        for answered in [pool.submit(traced.ask, "grpc") for _ in range(100)]:
            answered.result()
    traced.server.stop()
    files = [read(Path(f"{traced.file}.{index}")) for index in range(3)]
    assert [len(traces) for traces in files] == [10, 10, 5]
    ids = [one.head["id"] for traces in files for one in traces]
    assert sorted(ids) == list(range(1, 26))
    assert not traced.file.exists()


def test_settings_that_change_under_load_lose_no_trace_and_fail_no_request(
    start_server: StartServer, repository: Path
) -> None:
    models.write_add_sub(repository)
    traced = Traced(start_server, repository, "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1")
    ended = threading.Event()

    def change() -> None:
        client = http.InferenceServerClient(f"127.0.0.1:{traced.server.http[1]}")
        for number in range(1, 1000):
            if ended.is_set():
                return
            client.update_trace_settings("add_sub", {"log_frequency": str(number % 3), "trace_rate": "1"})

    changing = threading.Thread(target=change)
    changing.start()
    with ThreadPoolExecutor(4) as pool:
        for answered in [pool.submit(traced.ask, "grpc") for _ in range(200)]:
            answered.result()
    ended.set()
    changing.join()
    traced.server.stop()
    paths = list(traced.file.parent.glob("trace.json*"))
    found = Counter(one.head["id"] for path in paths for one in read(path))
    assert found == Counter(range(1, 201))


def test_an_engine_in_a_program_traces_what_it_is_asked(repository: Path, tmp_path: Path) -> None:
    models.write_add_sub(repository)
    file = tmp_path / "own.json"
    options = TraceOptions(level=("TIMESTAMPS",), rate=1, file=str(file))
    with Engine(repository, options=EngineOptions(trace=options)) as engine:
        engine.infer("add_sub", VALUES, VALUES, request_id="mine")
    (trace,) = read(file)
    assert (trace.head["request_id"], trace.names) == ("mine", [*REQUEST, *COMPUTE, "REQUEST_END"])
