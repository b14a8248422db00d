"""Models that give any number of responses, asked by those that take one"""

import json
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from runners import Client, Engine
from runners.errors import Unsupported
from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.test_models import client_of, tensor
from tests.raw_http import fetch
from tests.serving import Server

ONE_AT_LEAST = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various number "
    "of responses"
)
ASKING = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        asked = pb_utils.InferenceRequest(
            model_name="counting", requested_output_names=["NUMBER"], inputs=request.inputs()
        ).exec()
        return pb_utils.InferenceResponse(asked.output_tensors(), error=asked.error())
"""


def count(number: int) -> np.ndarray:
    return np.array([number], np.int32)


@pytest.fixture
def server(repository: Path, start_server: StartServer) -> Server:
    models.write(repository, "counting", models.COUNTING, models.COUNTING_CONFIG)
    config = models.COUNTING_CONFIG.replace("model_transaction_policy { decoupled: true }", "")
    models.write(repository, "asking", ASKING, config)
    return start_server(repository, f"--local-socket={repository.parent}/local")


def executions(server: Server) -> int:
    return int(client_of(server).get_inference_statistics("counting")["model_stats"][0]["execution_count"])


def test_infer_over_http_is_refused_before_the_model_is_asked(server: Server) -> None:
    client = client_of(server)
    with pytest.raises(InferenceServerException) as raised:
        client.infer("counting", [tensor("COUNT", count(1))])
    text = "HTTP end point doesn't support models with decoupled transaction policy"
    assert (raised.value.status(), raised.value.message()) == ("501", text)
    assert fetch(server.http, "POST", "/v2/models/counting/infer", body=b"not JSON").status == 501
    assert executions(server) == 0


def test_generate_takes_exactly_one_response(server: Server) -> None:
    path = "/v2/models/counting/generate"
    one = fetch(server.http, "POST", path, body=b'{"COUNT": 1}')
    assert (one.status, json.loads(one.body)["NUMBER"]) == (200, 0)
    for wrong in (0, 2):
        answer = fetch(server.http, "POST", path, body=b'{"COUNT": %d}' % wrong)
        assert (answer.status, json.loads(answer.body)) == (500, {"error": ONE_AT_LEAST})


def test_calls_that_take_one_response_are_refused(server: Server, repository: Path) -> None:
    refused = "model 'counting' is decoupled, it gives any number of responses and 'infer' takes one: expected "
    with Client(f"unix://{repository.parent}/local") as client, pytest.raises(Unsupported, match=refused):
        client.infer("counting", {"COUNT": count(1)})
    with Engine(repository) as engine, pytest.raises(Unsupported, match=refused + "engine.stream"):
        engine.infer("counting", {"COUNT": count(1)})
    assert executions(server) == 0


def test_a_model_that_asks_for_one_response_is_told_to_ask_for_more(server: Server) -> None:
    with pytest.raises(InferenceServerException) as raised:
        client_of(server).infer("asking", [tensor("COUNT", count(1))])
    assert raised.value.message() == (
        "Model counting is using the decoupled. The current BLS request call doesn't support models using the "
        "decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for "
        "decoupled models.'"
    )
