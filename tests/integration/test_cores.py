"""On which cores the threads and processes of models run, as the system says it"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput

from tests import models
from tests.cores import CORES, threads_on
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
A, B = CORES[0], CORES[-1]
EACH: Final = f"{A};{B}"
TWO: Final = "instance_group { kind: KIND_CPU count: 2 }"
PYTHON: Final = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.cores = sorted(os.sched_getaffinity(0))
        print(f"{args['model_instance_name']} is on {self.cores} with {os.environ.get('OMP_NUM_THREADS')} thread(s)")

    def execute(self, requests):
        cores = pb_utils.Tensor("CORES", np.array(sorted(os.sched_getaffinity(0)), np.int64))
        return [pb_utils.InferenceResponse([cores]) for _ in requests]
"""


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def write_python(repository: Path, text: str) -> None:
    version = repository / "m" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(PYTHON)
    (version.parent / "config.pbtxt").write_text(
        f'backend: "python" input {{ name: "X" data_type: TYPE_INT64 dims: 1 }} '
        f'output {{ name: "CORES" data_type: TYPE_INT64 dims: -1 }}\n{text}'
    )


def ask(server: Server) -> list[int]:
    x = InferInput("X", [1], "INT64")
    x.set_data_from_numpy(np.zeros(1, np.int64))
    with InferenceServerClient(f"{server.http[0]}:{server.http[1]}") as client:
        cores: list[int] = client.infer("m", [x]).as_numpy("CORES").tolist()
    return cores


def refusal(server: Server) -> str:
    reason: str = server.post("/v2/repository/index", b"").json()[0]["reason"]
    return reason


@pytest.mark.clock
def test_each_instance_thread_of_a_native_model_is_on_its_cores(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository, "m", extra=f"{TWO}\n{parameter('kushi.cores', EACH)}")
    server = start_server(repository)
    eventually(
        lambda: (threads_on(server.pid, A), threads_on(server.pid, B)) == (["m_0"], ["m_1"]), "threads on their cores"
    )


@pytest.mark.clock
def test_one_set_of_cores_is_for_all_instances(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository, "m", extra=f"{TWO}\n{parameter('kushi.cores', str(B))}")
    server = start_server(repository)
    eventually(lambda: threads_on(server.pid, B) == ["m_0", "m_1"], "threads on the core")
    assert threads_on(server.pid, A) == []


@pytest.mark.clock
def test_the_instances_of_several_groups_have_their_cores_in_order(repository: Path, start_server: StartServer) -> None:
    groups = "instance_group [ { kind: KIND_CPU count: 1 }, { kind: KIND_CPU count: 2 } ]"
    models.write_add_sub(repository, "m", extra=f"{groups}\n{parameter('kushi.cores', f'{B};{A};{B}')}")
    server = start_server(repository)
    eventually(
        lambda: (threads_on(server.pid, A), threads_on(server.pid, B)) == (["m_1"], ["m_0", "m_2"]),
        "threads on their cores",
    )


@pytest.mark.clock
def test_the_threads_of_a_session_are_on_the_cores_of_its_instance(repository: Path, start_server: StartServer) -> None:
    stated = parameter("kushi.cores", EACH) + parameter("intra_op_thread_count", "3")
    models.write_add_sub(repository, "m", extra=f"{TWO}\n{stated}")
    server = start_server(repository)
    # the thread of the instance is the first of the three
    eventually(lambda: [len(threads_on(server.pid, core)) for core in (A, B)] == [3, 3], "pools on their cores")
    server.log.wait_for(re.compile(r"gives each instance 3 threads, and the parameter 'kushi.cores' leaves it 1"), 10)


@pytest.mark.clock
def test_the_instances_of_a_network_of_openvino_compute_on_their_cores(
    repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository, "m", extra=f"{TWO}\n{parameter('kushi.cores', EACH)}")
    path = repository / "m" / "config.pbtxt"
    stated = path.read_text().replace('platform: "onnxruntime_onnx"', "")
    path.write_text(f'{stated}\nbackend: "openvino" default_model_filename: "model.onnx"\n')
    server = start_server(repository)
    eventually(lambda: (threads_on(server.pid, A), threads_on(server.pid, B)) == (["m_0"], ["m_1"]), "threads on cores")
    values = np.ones([1, 16], np.int32)
    with InferenceServerClient(f"{server.http[0]}:{server.http[1]}") as client:
        for _ in range(5):
            tensors = [InferInput(name, values.shape, "INT32") for name in ("INPUT0", "INPUT1")]
            for tensor in tensors:
                tensor.set_data_from_numpy(values)
            np.testing.assert_array_equal(client.infer("m", tensors).as_numpy("OUTPUT0"), values * 2)


@pytest.mark.clock
def test_a_model_without_cores_leaves_its_threads_anywhere(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository, "m", extra=TWO)
    server = start_server(repository)
    assert threads_on(server.pid, A) == threads_on(server.pid, B) == []


@pytest.mark.clock
@pytest.mark.parametrize("in_process", ["false", "true"])
def test_each_process_of_a_python_model_is_on_its_cores(
    in_process: str, repository: Path, start_server: StartServer
) -> None:
    write_python(repository, TWO + parameter("kushi.cores", EACH) + parameter("kushi.inprocess", in_process))
    server = start_server(repository)
    if in_process == "false":
        for number, core in enumerate((A, B)):
            server.log.wait_for(re.compile(rf"m_0_{number} is on \[{core}\] with 1 thread"), 30)
    assert ask(server) in ([A], [B])
    assert {*threads_on(server.pid, A)} == ({"m_0_0"} if in_process == "true" else set())


def test_a_process_that_is_started_again_is_on_the_same_cores(repository: Path, start_server: StartServer) -> None:
    text = "instance_group { kind: KIND_CPU }" + parameter("kushi.cores", str(B))
    write_python(repository, text + parameter("kushi.max_requests", "1"))
    server = start_server(repository)
    assert [ask(server) for _ in range(3)] == [[B]] * 3


@pytest.mark.parametrize(
    ("cores", "reason"),
    [
        ("4096", "expected cores as in '0-3,8' for all instances, or '0-3;4-7' with a set for each, got '4096'"),
        (f"{A};{B};{A}", "has 3 sets of cores and the model 2 instance(s), expected one set for all, or one for each"),
        (f"{A},1022-1023", "this process may not use the cores 1022-1023, it may use "),
    ],
)
def test_cores_that_cannot_be_are_refused_with_the_reason(
    cores: str, reason: str, repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository, "m", extra=f"{TWO}\n{parameter('kushi.cores', cores)}")
    server = start_server(repository, "--exit-on-error=false", ready=False)
    assert f"parameter 'kushi.cores' of model 'm'{':' if not reason.startswith('has') else ''} {reason}" in refusal(
        server
    )


def test_threads_that_all_models_share_have_no_cores(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository, "m", extra=f"{TWO}\n{parameter('kushi.cores', EACH)}")
    flag = "--backend-config=onnxruntime,enable-global-threadpool=1"
    server = start_server(repository, "--exit-on-error=false", flag, ready=False)
    assert "parameter 'kushi.cores' of model 'm' cannot hold where all models share their threads" in refusal(server)
