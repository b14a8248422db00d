"""What clients are told of answers of Python models that are out of the ordinary"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.integration.grpc_doors import port_of
from tests.integration.python_models import models

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Response
    from tests.serving import Server

ODD = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        what = pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0].decode()
        if what in dir(pb_utils.TritonError):
            error = pb_utils.TritonError("on purpose", getattr(pb_utils.TritonError, what))
            return pb_utils.InferenceResponse(error=error)
        array = np.ones(1, np.float16) if what == "half" else np.array([b"a"], np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", array)])
"""


def said(server: Server, what: str, verb: str = "infer") -> Response:
    tensors = [{"name": "WHAT", "datatype": "BYTES", "shape": [1], "data": [what]}]
    document: object = {"inputs": tensors} if verb == "infer" else {"WHAT": what}
    return server.post(f"/v2/models/odd/{verb}", json.dumps(document).encode())


def test_the_code_of_an_error_is_the_status(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "odd", ODD, models.FAULTY_CONFIG)
    server = start_server(repository)
    codes = ["UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS"]
    assert [said(server, code).status for code in codes] == [400, 500, 404, 400, 503, 501, 400]
    assert said(server, "CANCELLED").status == 400
    what = grpcclient.InferInput("WHAT", [1], "BYTES")
    found = []
    with grpcclient.InferenceServerClient(f"127.0.0.1:{port_of(server)}") as client:
        for code in [*codes, "CANCELLED"]:
            what.set_data_from_numpy(np.array([code], np.object_))
            with pytest.raises(InferenceServerException) as raised:
                client.infer("odd", [what])
            found.append(raised.value.status())
    expected = [
        "UNKNOWN",
        "INTERNAL",
        "NOT_FOUND",
        "INVALID_ARGUMENT",
        "UNAVAILABLE",
        "UNIMPLEMENTED",
        "ALREADY_EXISTS",
    ]
    assert found == [f"StatusCode.{code}" for code in [*expected, "CANCELLED"]]


def test_an_output_of_a_type_that_json_has_not_is_refused_when_it_comes(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "odd", ODD, models.FAULTY_CONFIG)
    server = start_server(repository)
    text = "sending FP16 data via JSON is not supported. Please use the binary data format for output"
    for verb in ("infer", "generate"):
        answer = said(server, "half", verb)
        assert (answer.status, answer.error) == (400, text)


def test_an_output_of_half_precision_that_is_left_out_hinders_no_json(
    repository: Path, start_server: StartServer
) -> None:
    half = 'output [ { name: "HALF" data_type: TYPE_FP16 dims: [ 1 ] } ]'
    models.write(repository, "odd", ODD, models.FAULTY_CONFIG + half)
    server = start_server(repository)
    assert said(server, "said").json()["outputs"][0]["data"] == ["a"]
    assert said(server, "said", "generate").json()["SAID"] == "a"


def test_a_model_may_have_no_tensors_at_all(repository: Path, start_server: StartServer) -> None:
    source = ODD.replace(
        "return [self.answer", "return [pb_utils.InferenceResponse() for _ in requests] or [self.answer"
    )
    (repository / "odd" / "1").mkdir(parents=True)
    (repository / "odd" / "1" / "model.py").write_text(source)
    server = start_server(repository)
    assert server.get("/v2/models/odd").json() == {
        "name": "odd",
        "versions": ["1"],
        "platform": "python",
        "inputs": [],
        "outputs": [],
    }
    assert server.post("/v2/models/odd/infer", b'{"inputs": []}').json()["outputs"] == []
