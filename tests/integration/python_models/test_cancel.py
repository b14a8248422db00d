"""What becomes of the calls of a request when its asker has gone"""

import re
from pathlib import Path

import numpy as np
import pytest

from tests import models as onnx_models
from tests.conftest import StartServer
from tests.gates import HELD, Gate
from tests.integration.python_models import callers, models
from tests.integration.python_models.test_models import client_of, pair, tensor
from tests.raw_http import frame
from tests.serving import Server
from tests.waiting import eventually

CANCELLED = "__ErrorCode.CANCELLED"


def write_asking(repository: Path, name: str, asked: str, how: str = "def", ask: str = "[asked.exec()]") -> None:
    source = callers.ASKING_ONE_THAT_WAITS.replace("HOW", how).replace("ASK", ask).replace("NAME", asked)
    models.write(repository, name, source, models.COUNTED_CONFIG)


def leave(server: Server) -> None:
    """Asks, and goes when the model at the end has begun"""
    body = b'{"inputs":[{"name":"WHAT","datatype":"BYTES","shape":[1],"data":["x"]}]}'
    with server.connect() as connection:
        connection.send(frame("POST", "/v2/models/asking/infer", body=body))
        server.log.wait_for(re.compile("waiting_0: has begun$"), 20)


@pytest.mark.parametrize(
    ("how", "ask", "decoupled"),
    [
        ("def", "[asked.exec()]", False),
        ("async def", "[await asked.async_exec()]", False),
        ("async def", "await asyncio.gather(asked.async_exec(), asked.async_exec())", False),
        ("def", "list(asked.exec(decoupled=True))", True),
        ("async def", "list(await asked.async_exec(decoupled=True))", True),
    ],
    ids=["exec", "async_exec", "two", "exec_decoupled", "async_exec_decoupled"],
)
def test_calls_end_when_the_asker_has_gone(
    how: str, ask: str, decoupled: bool, repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "waiting", *callers.waiting(decoupled=decoupled))
    write_asking(repository, "asking", "waiting", how, ask)
    server = start_server(repository)
    leave(server)
    for line in ("waiting_0: is cancelled", f"asking_0: {CANCELLED}"):
        server.log.wait_for(re.compile(line), 20)
    assert not any("is started again" in line for line in server.log.lines)


def test_calls_of_calls_end_as_well(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "waiting", *callers.waiting(decoupled=False))
    write_asking(repository, "middle", "waiting")
    write_asking(repository, "asking", "middle")
    server = start_server(repository)
    leave(server)
    for line in ("waiting_0: is cancelled", f"middle_0: {CANCELLED}", f"asking_0: {CANCELLED}"):
        server.log.wait_for(re.compile(line), 20)


def test_a_model_that_has_answered_goes_on_asking(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    models.write(repository, "asking", callers.ANSWERING_FIRST, models.ADD_SUB_CONFIG)
    server = start_server(repository)
    one = np.ones((1, 1), np.float32)
    for _ in range(5):
        client_of(server).infer("asking", pair(one, one))
    eventually(lambda: server.log.text().count("asking_0: asked: 2.0") == 5, "all of its questions are answered")


def test_a_deadline_that_passes_ends_the_calls(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "waiting", *callers.waiting(decoupled=False))
    write_asking(repository, "asking", "waiting")
    server = start_server(repository)
    with pytest.raises(Exception, match="Request timeout expired"):
        client_of(server).infer(
            "asking",
            [tensor("WHAT", np.array([b"x"], np.object_))],
            headers={"kushi-timeout-us": "1000000"},
        )
    server.log.wait_for(re.compile("waiting_0: is cancelled"), 20)


GIVING_UP = """
import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils

# more than may be waited for at once
COUNT = 300


def asked(model, value):
    tensor = pb_utils.Tensor("STEPS", np.array([[value]], np.int64))
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUTPUT0"], inputs=[tensor])


class TritonPythonModel:
    async def execute(self, requests):
        waiting = [asyncio.ensure_future(asked("held", HELD).async_exec()) for _ in range(COUNT)]
        for one in waiting:
            one.cancel()
        answer = await asked("other", 1).async_exec()
        assert not answer.has_error(), answer.error().message()
        return [pb_utils.InferenceResponse(answer.output_tensors()) for _ in requests]
"""

GIVING_UP_CONFIG = """
backend: "python"
max_batch_size: 1
input [ { name: "STEPS" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT64 dims: [ 1 ] } ]
"""


def test_calls_that_a_coroutine_gives_up_are_cancelled(repository: Path, start_server: StartServer) -> None:
    for name in ("held", "other"):
        onnx_models.write_gated(repository, name)
    models.write(repository, "asking", GIVING_UP.replace("HELD", str(HELD)), GIVING_UP_CONFIG)
    server = start_server(repository)
    with Gate(repository, "held") as gate:
        client = client_of(server)
        for _ in range(2):
            answer = client.infer("asking", [tensor("STEPS", np.array([[1]], np.int64))])
            assert answer.as_numpy("OUTPUT0").shape == (1, 1)
        gate.until_reached()
        pending = 'nv_inference_pending_request_count{model="held",version="1"}'
        eventually(lambda: server.metrics()[pending] == 0, "none of them waits any more")
