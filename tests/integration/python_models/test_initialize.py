"""What a model asks of the server before it serves"""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from tests import models as onnx_models
from tests.conftest import StartServer
from tests.integration.python_models import callers, models
from tests.integration.python_models.test_models import client_of, pair

ONE = np.ones((1, 1), np.float32)


def write_asking(repository: Path, name: str, asked: str, before: str = "pass") -> None:
    source = callers.ASKING_AT_START.replace("NAME", asked).replace("BEFORE", before)
    models.write(repository, name, source, models.ADD_SUB_CONFIG)


@pytest.fixture
def client(repository: Path, start_server: StartServer) -> InferenceServerClient:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    back = models.ASKING.replace("NAME", "asking").replace("OUTPUT1", "OUTPUT0")
    models.write(repository, "back", back, models.ADD_SUB_CONFIG)
    write_asking(repository, "asking", "add_sub")
    return client_of(start_server(repository, "--model-control-mode=explicit", "--load-model=add_sub"))


def test_a_model_asks_another_one_in_initialize(client: InferenceServerClient) -> None:
    client.load_model("asking")
    assert client.infer("asking", pair(ONE, ONE)).as_numpy("OUTPUT0").tolist() == [[3]]


def test_a_model_loads_the_one_that_it_asks(client: InferenceServerClient, repository: Path) -> None:
    client.unload_model("add_sub")
    write_asking(repository, "loading", "add_sub", "pb_utils.load_model('add_sub')")
    client.load_model("loading")
    assert client.infer("loading", pair(ONE, ONE)).as_numpy("OUTPUT0").tolist() == [[3]]
    assert client.is_model_ready("add_sub")


def test_a_model_loads_another_one_from_files_of_its_own(
    client: InferenceServerClient, repository: Path, tmp_path: Path
) -> None:
    file = tmp_path / "brought.onnx"
    file.write_bytes(onnx_models.plus_constant(4).SerializeToString())
    files = f"{{'file:3/model.onnx': open({str(file)!r}, 'rb').read()}}"
    load = f"""pb_utils.load_model('brought', config='{{"backend": "onnxruntime"}}', files={files})"""
    write_asking(repository, "loading", "add_sub", load)
    client.load_model("loading")
    assert client.get_model_metadata("brought")["versions"] == ["3"]


def test_what_models_load_waits_for_no_other_load(repository: Path, start_server: StartServer) -> None:
    names = ["outer", "middle", "inner", "add_sub"]
    for name, asked in itertools.pairwise(names):
        write_asking(repository, name, asked, f"pb_utils.load_model('{asked}')")
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    one_thread = ("--model-control-mode=explicit", "--model-load-thread-count=1")
    client = client_of(start_server(repository, *one_thread))
    client.load_model("outer")
    assert all(client.is_model_ready(name) for name in names)


def test_a_server_that_starts_loads_nothing_for_a_model(repository: Path, start_server: StartServer) -> None:
    models.write(repository, "add_sub", models.ADD_SUB, models.ADD_SUB_CONFIG)
    write_asking(repository, "loading", "add_sub", "pb_utils.load_model('add_sub')")
    control = ["--model-control-mode=explicit", "--load-model=loading"]
    server = start_server(repository, *control, "--exit-on-error=false", "--strict-readiness=false", ready=False)
    server.log.wait_for(re.compile("failed to load 'loading' version 1: TritonModelException: Server not ready"), 30)


def test_a_model_that_asks_one_that_is_not_there_is_not_loaded(client: InferenceServerClient) -> None:
    client.unload_model("add_sub")
    with pytest.raises(
        InferenceServerException, match="Request for unknown model: 'add_sub' has no available versions"
    ):
        client.load_model("asking")


@pytest.mark.parametrize("asked", ["asking", "back"])
def test_a_model_that_asks_itself_in_initialize_is_not_loaded(
    asked: str, client: InferenceServerClient, repository: Path
) -> None:
    client.load_model("asking")
    client.load_model("back")
    client.infer("back", pair(ONE, ONE))
    # its version of before serves, and would answer for it
    write_again = (repository / "asking" / "1" / "model.py").read_text().replace('"add_sub"', f'"{asked}"')
    (repository / "asking" / "1" / "model.py").write_text(write_again)
    with pytest.raises(
        InferenceServerException, match=r"model 'asking' cannot ask '.*': that would be a ring: 'asking' → "
    ):
        client.load_model("asking")
    assert client.infer("asking", pair(ONE, ONE)).as_numpy("OUTPUT0").tolist() == [[3]]


@pytest.mark.parametrize("loaded", ["first", "second"])
def test_models_that_load_one_another_are_an_error(
    loaded: str, client: InferenceServerClient, repository: Path
) -> None:
    write_asking(repository, "first", "add_sub", f"pb_utils.load_model({loaded!r})")
    write_asking(repository, "second", "add_sub", "pb_utils.load_model('first')")
    with pytest.raises(InferenceServerException) as raised:
        client.load_model("first")
    assert "is currently loading or unloading" in raised.value.message()
