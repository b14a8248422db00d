"""Plans in a real server, asked by real clients."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from tests.serving import GRPC_LINE
from tests.waiting import eventually

from .plans import ADD_SUB, ONE_GPU, buildable, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

COUNT = 60


def ask(server: Server, transport: str, count: int) -> None:
    module = tritonclient.http if transport == "http" else tritonclient.grpc
    port = server.http[1] if transport == "http" else int(server.log.wait_for(GRPC_LINE, 30)[1])
    with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
        for number in range(count):
            a, b = np.full((1 + number % 8, 2), number, np.float32), np.ones((1 + number % 8, 2), np.float32)
            inputs = []
            for name, value in (("A", a), ("B", b)):
                tensor = module.InferInput(name, list(value.shape), "FP32")
                tensor.set_data_from_numpy(value)
                inputs.append(tensor)
            answer = client.infer("m", inputs)
            np.testing.assert_array_equal(answer.as_numpy("SUM"), a + b)
            np.testing.assert_array_equal(answer.as_numpy("DIFFERENCE"), a - b)


@pytest.mark.parametrize("text", ["", "optimization { cuda { graphs: true } }"], ids=["plain", "graphs"])
def test_clients_of_both_doors_get_their_answers(repository: Path, start_server: StartServer, text: str) -> None:
    write(repository, "m", ADD_SUB, f"instance_group {{ kind: KIND_GPU count: 2 }} {text}")
    server = start_server(repository)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda transport: ask(server, transport, COUNT), ["http", "grpc"] * 3))


def test_isolated_instances_answer_from_processes_of_their_own(repository: Path, start_server: StartServer) -> None:
    isolated = 'parameters { key: "kushi.isolate" value { string_value: "true" } }'
    write(repository, "m", ADD_SUB, f"{ONE_GPU}max_batch_size: 8 {isolated}")
    ask(start_server(repository), "http", COUNT)


def test_a_model_whose_plan_is_built_meanwhile_becomes_ready(repository: Path, start_server: StartServer) -> None:
    folder = write(repository, "m", b"", f'backend: "tensorrt" {ONE_GPU}max_batch_size: 8')
    (folder / "model.plan").unlink()
    (folder / "model.onnx").write_bytes(buildable(ADD_SUB))
    server = start_server(repository, "--exit-on-error=false", ready=False)
    eventually(lambda: server.get("/v2/models/m/ready").status == 200, "the plan is built and served")
    ask(server, "http", COUNT)


def test_an_unload_gives_the_memory_back_and_a_load_takes_it_again(repository: Path, start_server: StartServer) -> None:
    write(repository, "m", ADD_SUB, ONE_GPU)
    server = start_server(repository, "--model-control-mode=explicit", "--load-model=m")
    for _ in range(3):
        ask(server, "grpc", 5)
        assert server.post("/v2/repository/models/m/unload", b"{}").status == 200
        assert server.post("/v2/repository/models/m/load", b"{}").status == 200
