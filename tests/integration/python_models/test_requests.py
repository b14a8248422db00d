"""What a model hears of a request beside its inputs, and in which shapes its tensors come and go"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.http import InferResult

from runners import Client, Engine, Result
from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.test_models import client_of, tensor
from tests.serving import Server

NOTHING: dict[str, Any] = {
    "correlation_id": 0,
    "start": False,
    "end": False,
    "timeout": 0,
    "priority": 0,
    "trace": None,
    "parameters": {},
}
PAIR = """
platform: "ensemble"
input [ { name: "WHAT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [
  { name: "FIRST" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "SECOND" data_type: TYPE_STRING dims: [ 1 ] }
]
ensemble_scheduling { step [
  {
    model_name: "hearing" model_version: -1
    input_map { key: "WHAT" value: "WHAT" } output_map { key: "SAID" value: "FIRST" }
  },
  {
    model_name: "hearing" model_version: -1
    input_map { key: "WHAT" value: "WHAT" } output_map { key: "SAID" value: "SECOND" }
  }
] }
"""


def word(text: str) -> np.ndarray:
    return np.array([text.encode()], np.object_)


def heard(answer: InferResult | Result) -> dict[str, Any]:
    said = answer.as_numpy("SAID")
    assert said is not None
    read: dict[str, Any] = json.loads(said[0])
    return read


RAGGED_CONFIG = """
backend: "python"
max_batch_size: 2
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]
output [ { name: "SAID" data_type: TYPE_INT32 dims: [ 2 ] } ]
dynamic_batching { preferred_batch_size: 2 max_queue_delay_microseconds: 600000000 }
"""
RAGGED = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        said = [np.array([[len(requests), array.shape[1]]], np.int32) for array in arrays]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SAID", one)]) for one in said]
"""


@pytest.fixture
def server(repository: Path, start_server: StartServer) -> Server:
    models.write(repository, "hearing", models.HEARING, models.COUNTED_CONFIG)
    models.write(repository, "asking", models.HEARING, models.COUNTED_CONFIG)
    return start_server(repository, f"--local-socket={repository.parent}/local")


@pytest.mark.parametrize("sequence", [7, 2**64 - 1, "seven é"])
def test_a_model_hears_of_the_sequence_of_a_request(sequence: int | str, server: Server) -> None:
    client = client_of(server)
    said = {"correlation_id": sequence, "start": True, "end": False, "timeout": 5_000_000}
    for what, priority in (("", 3), ("hearing", 3)):
        answer = client.infer(
            "asking",
            [tensor("WHAT", word(what))],
            sequence_id=sequence,
            sequence_start=True,
            sequence_end=False,
            timeout=5_000_000,
            priority=priority,
            parameters={"other": 1},
        )
        # a child inherits the priority; parameters are those that it was given
        parameters = {} if what else {"other": 1}
        assert heard(answer) == {**NOTHING, **said, "priority": priority, "parameters": parameters}


def test_every_step_of_an_ensemble_hears_of_the_sequence(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "hearing", models.HEARING, models.COUNTED_CONFIG)
    (repository / "pair" / "1").mkdir(parents=True)
    (repository / "pair" / "config.pbtxt").write_text(PAIR)
    client = client_of(start_server(repository))
    inputs = [tensor("WHAT", word(""))]
    answer = client.infer("pair", inputs, sequence_id="a", sequence_start=True, sequence_end=True)
    for output in ("FIRST", "SECOND"):
        said = answer.as_numpy(output)
        assert said is not None
        assert json.loads(said[0]) == {**NOTHING, "correlation_id": "a", "start": True, "end": True}


def test_a_request_without_a_sequence_says_nothing_of_one(server: Server) -> None:
    assert heard(client_of(server).infer("hearing", [tensor("WHAT", word(""))])) == NOTHING


def test_the_sequence_of_a_call_is_heard_on_every_way(server: Server, repository: Path) -> None:
    parameters: dict[str, bool | int | float | str] = {"sequence_id": "a", "sequence_end": True, "other": 0.5}
    expected = {**NOTHING, "correlation_id": "a", "end": True, "parameters": {"other": 0.5}}
    for url in (f"unix://{repository.parent}/local", f"http://{server.http[0]}:{server.http[1]}"):
        with Client(url) as client:
            assert heard(client.infer("hearing", {"WHAT": word("")}, parameters=parameters)) == expected
    with Engine(repository) as engine:
        assert heard(engine.infer("hearing", {"WHAT": word("")}, parameters=parameters)) == expected
        with pytest.raises(Exception, match="invalid value type for 'sequence_start' parameter, expected bool_param"):
            engine.infer("hearing", {"WHAT": word("")}, parameters={"sequence_start": 1})


@pytest.mark.parametrize(
    ("batch", "config"), [((), ""), ((3,), "max_batch_size: 4")], ids=["without_a_batch", "with_a_batch"]
)
def test_a_model_sees_the_shapes_of_reshape(
    batch: tuple[int, ...], config: str, repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "shaped", models.SHAPED, models.SHAPED_CONFIG + config)
    client = client_of(start_server(repository))
    x = np.arange(np.prod((*batch, 4, 4)), dtype=np.float32).reshape((*batch, 4, 4))
    answer = client.infer("shaped", [tensor("X", x)])
    assert answer.as_numpy("SHAPE").tolist() == [*batch, 2, 2, 4]
    assert answer.as_numpy("Y").shape == (*batch, 4, 4)
    assert np.array_equal(answer.as_numpy("Y").reshape(-1), x.reshape(-1))
    # an output of another shape keeps it
    answer = client.infer("shaped", [tensor("X", -x)])
    assert answer.as_numpy("Y").shape == (x.size,)


def test_requests_of_different_shapes_come_together_where_the_model_takes_them(repository: Path) -> None:
    models.write(repository, "ragged", RAGGED, RAGGED_CONFIG)
    with Engine(repository) as engine, ThreadPoolExecutor(2) as pool:
        widths = [2, 3]
        # by itself, the first would wait for ten minutes
        asked = [pool.submit(engine.infer, "ragged", np.zeros((1, width), np.float32)) for width in widths]
        said = [np.asarray(one.result()["SAID"]).tolist() for one in asked]
    assert said == [[[2, width]] for width in widths]
