"""Ensembles with steps in Python: when they are ready, and what is unloaded with them"""

from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.conftest import StartServer
from tests.integration.python_models import models
from tests.integration.python_models.test_models import client_of, tensor

ONCE = """
import pathlib

mark = pathlib.Path(__file__).with_name("mark")
if mark.exists():
    raise OSError("no more")
mark.touch()
"""

ENSEMBLE = """
platform: "ensemble"
input [ { name: "IN" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
ensemble_scheduling { step [
    { model_name: "faulty" model_version: -1
      input_map { key: "WHAT" value: "IN" } output_map { key: "SAID" value: "OUT" } }
] }
"""


def write_ensemble(repository: Path) -> None:
    (repository / "whole" / "1").mkdir(parents=True)
    (repository / "whole" / "config.pbtxt").write_text(ENSEMBLE)


def test_an_ensemble_is_ready_while_the_process_of_its_step_is_there(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "faulty", ONCE + models.FAULTY, models.FAULTY_CONFIG)
    write_ensemble(repository)
    client = client_of(start_server(repository))
    assert client.is_server_ready()
    for model in ("faulty", "whole"):
        assert client.is_model_ready(model)
    word = np.array([b"exit"], np.object_)
    with pytest.raises(InferenceServerException, match="exited with code 3"):
        client.infer("whole", [tensor("IN", word)])
    # it answers when it is known that no process follows
    with pytest.raises(InferenceServerException, match="OSError: no more"):
        client.infer("whole", [tensor("IN", word)])
    for model in ("faulty", "whole"):
        assert not client.is_model_ready(model)
    assert not client.is_server_ready()


@pytest.mark.parametrize("dependents", [False, True])
def test_a_client_unloads_an_ensemble_with_its_steps_where_it_says_so(
    dependents: bool, repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "faulty", models.FAULTY, models.FAULTY_CONFIG)
    write_ensemble(repository)
    client = client_of(start_server(repository, "--model-control-mode=explicit", "--load-model=whole"))
    assert client.is_model_ready("faulty")
    client.unload_model("whole", unload_dependents=dependents)
    assert not client.is_model_ready("whole")
    assert client.is_model_ready("faulty") is not dependents


SOMETIMES = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        more = pb_utils.get_input_tensor_by_name(request, "MORE")
        outputs = [pb_utils.Tensor("Y", x if more is None else x + more.as_numpy())]
        if x[0] > 0:
            outputs.append(pb_utils.Tensor("MORE", x * 10))
        return pb_utils.InferenceResponse(outputs)
"""

SOMETIMES_CONFIG = """
backend: "python"
input { name: "X" data_type: TYPE_FP32 dims: [ 1 ] }
input [ { name: "MORE" data_type: TYPE_FP32 dims: [ 1 ] optional: true } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "MORE" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""

TWICE = """
platform: "ensemble"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling { step [
    { model_name: "sometimes" model_version: -1 input_map { key: "X" value: "X" }
      output_map { key: "Y" value: "A" } output_map { key: "MORE" value: "B" } },
    { model_name: "sometimes" model_version: -1 input_map { key: "X" value: "A" } input_map { key: "MORE" value: "B" }
      output_map { key: "Y" value: "Y" } }
] }
"""


def test_an_output_that_a_step_leaves_out_is_an_optional_input_that_is_missing(
    repository: Path, start_server: StartServer
) -> None:
    models.write(repository, "sometimes", SOMETIMES, SOMETIMES_CONFIG)
    (repository / "twice" / "1").mkdir(parents=True)
    (repository / "twice" / "config.pbtxt").write_text(TWICE)
    client = client_of(start_server(repository))
    for x, y in ((1, 11), (-1, -1)):
        answer = client.infer("twice", [tensor("X", np.array([x], np.float32))])
        assert answer.as_numpy("Y").tolist() == [y]
