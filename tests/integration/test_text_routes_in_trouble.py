"""The routes of texts where something is in the way: a full queue, a token, a reload, a model that answers nonsense."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from onnx import numpy_helper

from tests import texts
from tests.text_routes import CONFIG, RERANK, ask, refused, vectors
from tests.texts import write
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Response


def test_one_model_alone_is_asked_without_its_name(tmp_path: Path, start_server: StartServer) -> None:
    write(tmp_path)
    server = start_server(tmp_path)
    assert ask(server, "/v1/embeddings", input="w1")["model"] == "m"
    status, error = refused(server, "/rerank", {"query": "w1", "documents": ["w1"]})
    assert (status, error["code"], "no model of texts serves that" in error["message"]) == (
        404,
        "model_not_found",
        True,
    )
    counted = server.metrics()
    assert counted['kushi_text_tokens_total{model="m",version="1"}'] == 3
    assert counted['kushi_text_padding_tokens_total{model="m",version="1"}'] == 0


WAITING = """
import os
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        while not os.path.exists(GATE):
            time.sleep(0.01)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones((1, 2), np.float32))]) for _ in requests]
"""


def test_a_full_queue_is_429_here_and_503_on_the_routes_of_triton(tmp_path: Path, start_server: StartServer) -> None:
    gate = tmp_path / "gate"
    model = tmp_path / "models" / "lengths" / "1"
    model.mkdir(parents=True)
    (model / "model.py").write_text(f"GATE = {str(gate)!r}\n{WAITING}")
    (model.parent / "config.pbtxt").write_text(
        CONFIG.replace("max_batch_size: 4", "max_batch_size: 1")
        + "dynamic_batching { default_queue_policy { max_queue_size: 1 } }"
    )
    server = start_server(tmp_path / "models")
    body = json.dumps({"model": "lengths", "input": "a"}).encode()
    infer = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}]}
    labels = '{model="lengths",version="1"}'
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(server.post, "/v1/embeddings", body)
        eventually(lambda: server.metrics()["kushi_running_requests"] == 1, "a request runs")
        second = pool.submit(server.post, "/v1/embeddings", body)
        eventually(lambda: server.metrics()[f"nv_inference_pending_request_count{labels}"] == 1, "a request waits")
        refusal = server.post("/v1/embeddings", body)
        assert (refusal.status, refusal.header("retry-after")) == (429, "1")
        assert refusal.json()["error"]["type"] == "rate_limit_error"
        assert server.post("/v2/models/lengths/infer", json.dumps(infer).encode()).status == 503
        gate.touch()
        assert [each.result().status for each in (first, second)] == [200, 200]


def test_a_token_is_asked_for_as_for_inference(tmp_path: Path, start_server: StartServer) -> None:
    write(tmp_path)
    server = start_server(tmp_path, "--http-restricted-api=inference:key=secret")
    body = json.dumps({"input": "w1", "inputs": "w1", "prompt": "w1", "query": "w1"}).encode()
    for path in ("/v1/embeddings", "/embed", *RERANK, "/classify", "/predict", "/tokenize"):
        assert server.post(path, body).status == 403
    assert server.get("/v1/models").status == 403
    body = json.dumps({"input": "w1"}).encode()
    assert server.post("/v1/embeddings", body, [("key", "secret")]).status == 200


ODD = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy().reshape(-1)
            width = 2 if texts[0] == b"two" else 1
            odd = np.full((len(texts), width), np.nan if texts[0] == b"nan" else 1, np.float32)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", odd)]))
        return answers
"""
ODD_CONFIG = """
backend: "python" max_batch_size: 8
input [ { name: "text" data_type: TYPE_STRING dims: [1] }, { name: "text_pair" data_type: TYPE_STRING dims: [1] } ]
output { name: "OUT" data_type: TYPE_FP32 dims: [-1] }
"""


def test_what_a_model_cannot_mean_is_an_error(tmp_path: Path, start_server: StartServer) -> None:
    model = tmp_path / "odd" / "1"
    model.mkdir(parents=True)
    (model / "model.py").write_text(ODD)
    (model.parent / "config.pbtxt").write_text(ODD_CONFIG)
    server = start_server(tmp_path)
    for query, text in (("nan", "what is no finite number"), ("two", "answers 2 scores to a text")):
        answer = server.post("/rerank", json.dumps({"model": "odd", "query": query, "documents": ["a", "b"]}).encode())
        assert answer.status == 500
        assert answer.json()["error"]["type"] == "server_error"
        assert text in answer.json()["error"]["message"]
    assert len(ask(server, "/rerank", model="odd", query="a", documents=["a"] * 20)["results"]) == 20


def test_all_parts_of_a_request_are_answered_by_one_version(tmp_path: Path, start_server: StartServer) -> None:
    """Which is loaded again all the while, with other weights."""
    config = "max_batch_size: 1\n"
    networks = [texts.network("texts"), texts.network("texts")]
    (vectors_of_the_other,) = (one for one in networks[1].graph.initializer if one.name == "vectors")
    vectors_of_the_other.CopyFrom(numpy_helper.from_array(texts.VECTORS[:, ::-1].copy(), "vectors"))
    for name, made in zip(("a", "b"), networks, strict=True):
        write(tmp_path / "networks", name, made=made)
    write(tmp_path / "models", "m", made=networks[0], text=config)
    server = start_server(tmp_path / "models", "--model-control-mode=explicit", "--load-model=m")
    body = json.dumps({"model": "m", "input": ["w1 w2"] * 200}).encode()
    is_over = threading.Event()

    def ask_on() -> list[Response]:
        answers = []
        while not is_over.is_set():
            answers.append(server.post("/v1/embeddings", body))
        return answers

    def reload(name: str) -> None:
        path = tmp_path / "models" / "m" / "1" / "model.onnx"
        new = path.with_suffix(".new")
        shutil.copy(tmp_path / "networks" / name / "1" / "model.onnx", new)
        new.rename(path)
        assert server.post("/v2/repository/models/m/load", b"{}").status == 200

    found = [server.post("/v1/embeddings", body)]
    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask_on) for _ in range(3)]
        try:
            for name in "bababab":
                reload(name)
        finally:
            is_over.set()
        for each in asking:
            found += each.result()
    found.append(server.post("/v1/embeddings", body))
    assert {answer.status for answer in found} == {200}
    seen = set()
    for answer in found:
        rows = np.round(vectors(answer.json()), 5)
        assert len(np.unique(rows, axis=0)) == 1
        seen.add(tuple(rows[0].tolist()))
    assert len(seen) == 2
