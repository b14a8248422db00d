"""Tensors on their way to a Python model and back: of every kind and length, and who may keep them"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput

from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.test_faults import workers_of
from tests.integration.python_models.test_models import client_of, tensor
from tests.serving import Server

ECHO = """
import triton_python_backend_utils as pb_utils


def handed_on(tensor):
    if tensor.triton_dtype() == 13:
        return pb_utils.Tensor("OUTPUT", tensor.as_numpy())
    return pb_utils.Tensor.from_dlpack("OUTPUT", tensor)


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([handed_on(request.inputs()[0])]) for request in requests]
"""

IN_PLACE = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            array = request.inputs()[0].as_numpy()
            array += 1
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", array)]))
        return responses
"""

KEEPING = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        responses = []
        for request in requests:
            array = request.inputs()[0].as_numpy()
            if array.size == 0:
                self.kept.clear()
            else:
                self.kept.append((array, array.copy()))
            same = all((array == copy).all() for array, copy in self.kept)
            answer = array[:0] if not same else array
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", answer)]))
        return responses
"""

ASYNC = """
import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.inside = 0
        self.changed = None

    async def execute(self, requests):
        if self.changed is None:
            self.changed = asyncio.Condition()
        async with self.changed:
            self.inside += len(requests)
            self.changed.notify_all()
            await self.changed.wait_for(lambda: self.inside >= 2)
        for request in requests:
            sender = request.get_response_sender()
            tensor = pb_utils.Tensor("OUTPUT", request.inputs()[0].as_numpy() * 2)
            sender.send(pb_utils.InferenceResponse([tensor]), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def config(kind: str, dims: str = "-1", batch: int = 0, more: str = "") -> str:
    return f"""
backend: "python"
max_batch_size: {batch}
input [ {{ name: "INPUT" data_type: TYPE_{kind} dims: [ {dims} ] }} ]
output [ {{ name: "OUTPUT" data_type: TYPE_{kind} dims: [ {dims} ] }} ]
{more}"""


def asked(client: InferenceServerClient, array: np.ndarray, kind: str = "", model: str = "echo") -> np.ndarray:
    given = tensor("INPUT", array) if not kind else InferInput("INPUT", list(array.shape), kind)
    if kind:
        given.set_data_from_numpy(array)
    answer: np.ndarray | None = client.infer(model, [given]).as_numpy("OUTPUT")
    assert answer is not None
    return answer


LENGTHS = [1, 3, 5_000, 12_345, 40_000, 1_500_000, 20, 300_000, 2_000_000, 7]
"""In elements of four bytes: on the socket, in a slot, in a longer one, and in those that are there already"""


def lengths() -> Iterator[np.ndarray]:
    for number, length in enumerate(LENGTHS * 2):
        yield np.arange(number, number + length, dtype=np.float32)


@pytest.mark.parametrize("kind", ["STRING", "FP16", "BF16", "BOOL", "INT8", "UINT64", "FP64"])
@pytest.mark.parametrize("batch", [0, 8])
def test_tensors_of_every_kind_come_back_as_they_were(
    kind: str, batch: int, repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "echo", ECHO, config(kind, "-1, 2" if batch == 0 else "2", batch))
    client = client_of(start_server(repository))
    if kind == "STRING":
        arrays = [
            np.array([[b"", "grüezi".encode()], [b"\0\xff", b"x" * length]], np.object_) for length in (1, 200_000)
        ]
    else:
        dtype = {"BF16": ml_dtypes.bfloat16, "BOOL": "bool", "FP16": "float16", "FP64": "float64"}.get(
            kind, kind.lower()
        )
        arrays = [
            np.arange(rows * 2).reshape(rows, 2).astype(dtype) for rows in ((1, 8, 30_000) if batch == 0 else (1, 8))
        ]
        arrays += [np.zeros((0, 2), dtype)] if batch == 0 else []
    for array in arrays:
        answer = asked(client, array, "BYTES" if kind == "STRING" else kind)
        assert answer.shape == array.shape
        assert (answer == array).all()


@pytest.mark.clock
def test_lengths_may_change_from_request_to_request(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "echo", ECHO, config("FP32"))
    server = start_server(repository)
    client = client_of(server)
    for array in lengths():
        assert np.array_equal(asked(client, array), array)
    shared = shared_memory_of(server)
    for array in lengths():
        assert np.array_equal(asked(client, array), array)
    assert shared_memory_of(server) <= shared, "what is there is used again"


def shared_memory_of(server: Server) -> int:
    """The slots that the server and its workers hold"""
    found = set()
    for process in (server.pid, *workers_of(server)):
        for entry in Path(f"/proc/{process}/map_files").iterdir():
            target = entry.readlink().name
            if "memfd:kushi" in target:
                found.add(entry.stat().st_ino)
    return len(found)


def test_many_large_requests_at_once_keep_their_own_answers(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "echo", ECHO, config("FP32", more="instance_group { count: 2 kind: KIND_CPU }"))
    server = start_server(repository)

    def ask(asker: int) -> bool:
        arrays = (np.full(length, asker, np.float32) for length in LENGTHS)
        with client_of(server) as client:
            return all(np.array_equal(asked(client, array), array) for array in arrays)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


@pytest.mark.parametrize("length", [4, 1_500_000], ids=["on_the_socket", "in_shared_memory"])
def test_a_model_may_write_to_its_inputs(length: int, repository: Path, start_server: StartServer) -> None:
    models.write(repository, "echo", IN_PLACE, config("FP32"))
    client = client_of(start_server(repository))
    for value in range(5):
        array = np.full(length, value, np.float32)
        assert (asked(client, array) == value + 1).all()


@pytest.mark.clock
def test_inputs_stay_as_they_are_for_as_long_as_a_model_keeps_them(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "echo", KEEPING, config("FP32"))
    server = start_server(repository)
    client = client_of(server)
    for array in lengths():
        assert asked(client, array).size == array.size, "an input that was kept has changed"
    kept = shared_memory_of(server)
    asked(client, np.zeros(0, np.float32))
    for array in lengths():
        asked(client, np.zeros(0, np.float32))
        assert asked(client, array).size == array.size
    assert shared_memory_of(server) < kept, "what is kept no more is used again"


def test_coroutines_of_several_batches_run_at_once(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "echo", ASYNC, config("FP32", more="model_transaction_policy { decoupled: true }"))
    server = start_server(repository)
    bodies = [f'{{"INPUT": [{number}]}}'.encode() for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda body: server.post("/v2/models/echo/generate_stream", body), bodies))
    assert [f'"OUTPUT":{2.0 * number}' in answer.body.decode() for number, answer in enumerate(answers)] == [True] * 2


REQUEST = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            said = [request.request_id(), json.loads(request.parameters()), request.requested_output_names()]
            text = np.array([json.dumps(said).encode()], np.object_)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", text)]))
        return responses
"""


def test_ids_parameters_and_wanted_outputs_arrive(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "echo", REQUEST, config("STRING"))
    client = client_of(start_server(repository))
    given = {"text": "grüezi", "count": 3, "flag": True, "half": 0.5}
    answer = client.infer(
        "echo", [tensor("INPUT", np.array([b"x"], np.object_))], request_id="the first", parameters=given
    )
    assert answer.get_response()["id"] == "the first"
    assert json.loads(answer.as_numpy("OUTPUT")[0]) == ["the first", given, ["OUTPUT"]]
