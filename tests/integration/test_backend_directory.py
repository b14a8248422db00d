"""Python-based backends: a directory whose model.py executes all models of a backend"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from runners import ConfigInvalid, Engine, EngineOptions, ModelOptions, ModelUnavailable
from runners.repository import discovery

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer

ADVICE = r"put its model\.py into DIR/vllm, and start with --backend-directory=DIR"
BACKEND = """
import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
from arithmetic import scaled


def stated():
    return json.loads(Path(pb_utils.get_model_dir(), "scale.json").read_text())


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        auto_complete_model_config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [stated()["width"]]})
        auto_complete_model_config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [stated()["width"]]})
        auto_complete_model_config.set_max_batch_size(8)
        return auto_complete_model_config

    def initialize(self, args):
        self.by = stated()["by"]
        self.named = f"{args['model_name']}:{args['model_version']}"

    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", scaled(x, self.by))]))
        return answers
"""


@pytest.fixture(autouse=True)
def _directories_of_a_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """They are those of a process"""
    monkeypatch.setattr(discovery, "_directories", [])
    yield
    discovery.found.cache_clear()


def write_backend(directory: Path, name: str = "scale") -> Path:
    folder = directory / name
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(BACKEND)
    (folder / "arithmetic.py").write_text("def scaled(x, by):\n    return x * by\n")
    return directory


def write_model(repository: Path, name: str, by: float, version: int = 1, backend: str = "scale") -> None:
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(f'backend: "{backend}"')
    (folder / "scale.json").write_text(json.dumps({"width": 2, "by": by}))


def options(directory: Path) -> EngineOptions:
    return EngineOptions(backend_directory=str(directory))


def answer(engine: Engine, model: str) -> list[float]:
    found: list[float] = engine.infer(model, {"X": np.array([[1, 2]], np.float32)})["Y"][0].tolist()
    return found


def test_one_program_executes_all_models_of_its_backend(tmp_path: Path) -> None:
    directory = write_backend(tmp_path / "backends")
    # what else lies there is no backend
    (directory / "notes").mkdir()
    (directory / "readme.txt").write_text("")
    repository = tmp_path / "models"
    for name, by, version in (("double", 2, 1), ("triple", 3, 7)):
        write_model(repository, name, by, version)
    with Engine(repository, options=options(directory)) as engine:
        assert (answer(engine, "double"), answer(engine, "triple")) == ([2, 4], [3, 6])
        metadata = engine.get_model_metadata("triple")
        assert metadata["inputs"] == [{"name": "X", "datatype": "FP32", "shape": [-1, 2]}]
        assert engine.get_model_config("triple")["backend"] == "scale"


def test_the_flags_of_the_server_and_of_the_check(tmp_path: Path, start_server: StartServer) -> None:
    directory = write_backend(tmp_path / "backends", "tens")
    write_model(tmp_path / "models", "ten", 10, backend="tens")
    flag = f"--backend-directory={directory}"
    server = start_server(tmp_path / "models", flag, "--backend-config=tens,stub-timeout-seconds=20")
    assert server.get("/v2/models/ten/ready").status == 200
    for more, verb in (([], "served"), (["--load"], "loads")):
        command = [sys.executable, "-m", "runners", "check", str(tmp_path / "models"), flag, *more]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith(f"ten: {verb}, tens, version 1")


def test_it_may_run_on_threads_of_the_server(tmp_path: Path) -> None:
    directory = write_backend(tmp_path / "backends")
    write_model(tmp_path / "models", "m", 5)
    with (tmp_path / "models" / "m" / "config.pbtxt").open("a") as file:
        file.write(' parameters { key: "kushi.inprocess" value { string_value: "true" } }')
    with Engine(tmp_path / "models", options=options(directory)) as engine:
        assert answer(engine, "m") == [5, 10]


def test_a_load_needs_leave_to_bring_a_model_of_it(tmp_path: Path) -> None:
    directory = write_backend(tmp_path / "backends")
    (tmp_path / "models").mkdir()
    explicit = replace(options(directory), models=ModelOptions(control="explicit"))
    files = {"file:1/scale.json": b'{"width": 2, "by": 3}'}
    refused = pytest.raises(ConfigInvalid, match="for the backend 'scale' may run as code: that needs")
    with Engine(tmp_path / "models", options=explicit) as engine, refused:
        engine.load_model("m", config='{"backend": "scale"}', files=files)
    leave = replace(explicit, models=ModelOptions(control="explicit", load_files="all"))
    with Engine(tmp_path / "models", options=leave) as engine:
        engine.load_model("m", config='{"backend": "scale"}', files=files)
        assert answer(engine, "m") == [3, 6]


def test_a_folder_that_cannot_be_read_is_no_backend(tmp_path: Path) -> None:
    directory = write_backend(tmp_path / "backends")
    (directory / "a file").write_text("")
    (directory / "gone").symlink_to(directory / "nowhere")
    write_model(tmp_path / "models", "m", 2)
    with Engine(tmp_path / "models", options=options(directory)) as engine:
        assert answer(engine, "m") == [2, 4]


def test_what_stands_in_the_way_is_said(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "m", 1, backend="vllm")
    with pytest.raises(ModelUnavailable, match=ADVICE):
        Engine(tmp_path / "models")
    with pytest.raises(ConfigInvalid, match=r"backend directory '.*nowhere' is not there"):
        Engine(tmp_path / "models", options=options(tmp_path / "nowhere"))


def test_a_backend_that_is_there_already_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = write_backend(tmp_path / "backends", "onnxruntime")
    write_backend(directory, "fours")
    write_model(tmp_path / "models", "four", 4, backend="fours")
    with Engine(tmp_path / "models", options=options(directory)) as engine:
        assert answer(engine, "four") == [4, 8]
    assert "is left out: there is a backend 'onnxruntime' already" in caplog.text
