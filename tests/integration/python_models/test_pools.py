"""Models that share their work out among processes of their own"""

import re
from pathlib import Path

import numpy as np
import pytest
from tritonclient.http import InferInput

from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.test_models import client_of

POOLED = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import triton_python_backend_utils as pb_utils


def doubled(tensor):
    pb_utils.Logger.log_info(f"doubles {tensor.name()}")
    return pb_utils.Tensor("OUTPUT", tensor.as_numpy() * 2)


class TritonPythonModel:
    def initialize(self, args):
        self.pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("METHOD"))

    def execute(self, requests):
        inputs = [pb_utils.Tensor("INPUT", request.inputs()[0].as_numpy()) for request in requests]
        return [pb_utils.InferenceResponse([output]) for output in self.pool.map(doubled, inputs)]

    def finalize(self):
        self.pool.shutdown()
"""

CONFIG = """
backend: "python"
input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes_of_a_pool_know_the_api(method: str, repository: Path, start_server: StartServer) -> None:
    models.write(repository, "pooled", POOLED.replace("METHOD", method), CONFIG)
    server = start_server(repository)
    given = np.arange(3, dtype=np.float32)
    asked = InferInput("INPUT", [3], "FP32").set_data_from_numpy(given)
    with client_of(server) as client:
        answer = client.infer("pooled", [asked])
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT"), given * 2)
    server.log.wait_for(re.compile("doubles INPUT"), 10)
    # and with it the processes of the pool
    assert server.stop() == 0
