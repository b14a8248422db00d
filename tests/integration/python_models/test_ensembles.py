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
