"""What takes long of a request over gRPC is done where no other request waits for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import InferenceServerClient as Client

from tests import models
from tests.integration.grpc_doors import port_of
from tests.integration.python_models import models as python_models
from tests.integration.test_grpc import array_input, request
from tests.processes import thread_names
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

pytestmark = pytest.mark.clock

SHORT: Final = 1_000
LONG: Final = 100_000


@pytest.fixture
def server(repository: Path, start_server: StartServer) -> Server:
    """Its threads for long work start when there is some"""
    models.write_identities(repository)
    return start_server(repository)


def has_worked_aside(server: Server) -> bool:
    return any(name.startswith("kushi-body-") for name in thread_names(server.pid).values())


@pytest.mark.parametrize(("elements", "is_long"), [(SHORT, False), (LONG, True)])
def test_classes_of_many_elements_are_chosen_aside(server: Server, elements: int, *, is_long: bool) -> None:
    values = np.arange(elements, dtype=np.float32).reshape(1, elements)
    wanted = [triton.InferRequestedOutput("OUTPUT0", class_count=2)]
    with Client(f"127.0.0.1:{port_of(server)}") as client:
        result = client.infer("identity_fp32", [array_input("INPUT0", "FP32", values)], outputs=wanted)
    best = [f"{float(elements - place):f}:{elements - place}".encode() for place in (1, 2)]
    assert result.as_numpy("OUTPUT0").ravel().tolist() == best
    assert has_worked_aside(server) == is_long


TELLING = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            print("got", request.inputs()[0].as_numpy().size, flush=True)
        return [pb_utils.InferenceResponse(request.inputs()) for request in requests]
"""

TELLING_CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def test_the_requests_of_a_stream_keep_their_order(repository: Path, start_server: StartServer) -> None:
    python_models.write(repository, "identity_fp32", TELLING, TELLING_CONFIG)
    server = start_server(repository)
    lengths = [LONG, 1, 2, LONG + 1, 3, LONG + 2, LONG + 3, 4] * 3
    asked = [request("FP32", [1, length], fp32_contents=range(length)) for length in lengths]
    with Client(f"127.0.0.1:{port_of(server)}") as client:
        answers = [answer.infer_response for answer in client._client_stub.ModelStreamInfer(iter(asked))]
    assert [triton.InferResult(answer).as_numpy("INPUT0").size for answer in answers] == lengths
    assert has_worked_aside(server)

    def got() -> list[int]:
        return [int(found[1]) for line in server.log.lines if (found := re.search(r"_0: got (\d+)$", line))]

    # what a model prints goes another way than what it answers
    eventually(lambda: len(got()) == len(lengths), "all lines are there")
    assert got() == lengths


@pytest.mark.parametrize(("elements", "is_long"), [(SHORT, False), (LONG, True)])
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BYTES"])
def test_many_numbers_in_typed_fields_are_read_aside(
    server: Server, datatype: str, elements: int, *, is_long: bool
) -> None:
    field = {"FP32": "fp32_contents", "INT64": "int64_contents", "BYTES": "bytes_contents"}[datatype]
    values = [str(number).encode() if datatype == "BYTES" else number for number in range(elements)]
    asked = request(datatype, [1, elements], **{field: values})
    with Client(f"127.0.0.1:{port_of(server)}") as client:
        answer = client._client_stub.ModelInfer(asked)
    assert triton.InferResult(answer).as_numpy("OUTPUT0").ravel().tolist() == values
    assert has_worked_aside(server) == is_long
