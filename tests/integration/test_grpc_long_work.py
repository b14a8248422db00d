"""What takes long of a request over gRPC is done where no other request waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import InferenceServerClient as Client

from tests import models
from tests.integration.grpc_doors import port_of
from tests.integration.test_grpc import array_input, request
from tests.serving import thread_names

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


def test_the_requests_of_a_stream_keep_their_order(server: Server) -> None:
    # what is read aside would be overtaken by what comes behind it
    asked = request("FP32", [1, LONG], fp32_contents=range(LONG))
    with Client(f"127.0.0.1:{port_of(server)}") as client:
        (answer,) = client._client_stub.ModelStreamInfer(iter([asked]))
    assert triton.InferResult(answer.infer_response).as_numpy("OUTPUT0").shape == (1, LONG)
    assert not has_worked_aside(server)


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
