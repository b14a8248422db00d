"""Loads that bring a configuration, or files in place of the model's directory"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from runners import ConfigInvalid, Engine, EngineOptions, InvalidInput, ModelOptions, ModelUnavailable
from tests import models
from tests.unit.controlled import EXPLICIT, index, plus
from tests.waiting import eventually, settles

ONNX = json.dumps({"backend": "onnxruntime", "max_batch_size": 4})
POLL = "failed to load 'm', failed to poll from model repository: "
CODE = b"""
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([7], np.int32))]) for _ in requests]
"""
PYTHON = json.dumps(
    {
        "backend": "python",
        "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}],
    }
)


def onnx(constant: int) -> bytes:
    return models.plus_constant(constant).SerializeToString()


def answer(engine: Engine, model: str = "m") -> int:
    return int(engine.infer(model, {"INPUT0": np.zeros((1, 1), np.int32)})["OUTPUT0"][0, 0])


def versions(engine: Engine, model: str = "m") -> list[str]:
    return [row.version for row in engine.models() if row.name == model and row.state == "READY"]


def specific(*numbers: int) -> str:
    return json.dumps({"backend": "onnxruntime", "version_policy": {"specific": {"versions": numbers}}})


def with_leave(leave: Literal["data", "all", "none"]) -> EngineOptions:
    return EngineOptions(models=ModelOptions(control="explicit", load_files=leave))


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files that a load brings are written"""
    place = tmp_path / "folders"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def engine(tmp_path: Path, folders: Path) -> Iterator[Engine]:
    plus(tmp_path / "models", "m", (1, 2, 3))
    with Engine(tmp_path / "models", options=EXPLICIT) as one:
        yield one


def test_a_configuration_takes_the_place_of_that_in_the_directory(engine: Engine) -> None:
    engine.load_model("m", config=specific(2))
    assert (versions(engine), answer(engine)) == (["2"], 2)
    engine.load_model("m", config=specific(1, 2))
    assert versions(engine) == ["1", "2"]


def test_it_stays_until_the_files_change_or_the_model_is_unloaded(engine: Engine, tmp_path: Path) -> None:
    engine.load_model("m", config=specific(2))
    engine.load_model("m")
    assert versions(engine) == ["2"]
    (tmp_path / "models" / "m" / "2" / "model.onnx").write_bytes(onnx(9))
    engine.load_model("m")
    assert versions(engine) == ["3"]
    engine.load_model("m", config=specific(2))
    assert answer(engine) == 9
    engine.unload_model("m")
    engine.load_model("m")
    assert versions(engine) == ["3"]


def test_files_take_the_place_of_the_directory_until_the_next_load(engine: Engine, folders: Path) -> None:
    engine.load_model("m")
    engine.load_model("m", config=ONNX, files={"file:7/model.onnx": onnx(70)})
    assert (versions(engine), answer(engine)) == (["7"], 70)
    assert [path.relative_to(folders).parts[1:] for path in folders.rglob("*.onnx")] == [("m", "7", "model.onnx")]
    engine.load_model("m")
    assert (versions(engine), answer(engine)) == (["3"], 3)
    settles(lambda: not list(folders.iterdir()), "the files are gone")


def test_a_model_may_be_made_of_files_alone(engine: Engine, folders: Path) -> None:
    files = {"file:1/model.onnx": onnx(5), "file:config.pbtxt": b"it is not read"}
    engine.load_model("new", config=ONNX, files=files)
    assert answer(engine, "new") == 5
    engine.load_model("new", config=specific(2), files={"file:2/model.onnx": onnx(6)})
    assert answer(engine, "new") == 6
    engine.unload_model("new")
    settles(lambda: not list(folders.iterdir()), "the files are gone")
    settles(lambda: index(engine) == [{"name": "m"}], "it is forgotten")
    with pytest.raises(Exception, match="failed to load 'new', failed to poll from model repository"):
        engine.load_model("new")


def test_files_of_labels_are_found(engine: Engine) -> None:
    output = {"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1], "label_filename": "labels/a.txt"}
    config = json.dumps({"backend": "onnxruntime", "max_batch_size": 4, "output": [output]})
    engine.load_model("m", config=config, files={"file:1/model.onnx": onnx(1), "file:labels/a.txt": b"one\n"})
    result = engine.infer("m", {"INPUT0": np.zeros((1, 1), np.int32)}, outputs={"OUTPUT0": 1})
    assert result["OUTPUT0"].tolist() == [[b"1:0:one"]]


@pytest.mark.parametrize(
    "path",
    ["../m/1/model.onnx", "1/../../../x", "/etc/x", "", "1//x", "./x", "1/", "1/\0", "/".join("a" * 20), "1/\n"],
)
def test_a_file_lies_in_the_directory_of_the_model(engine: Engine, tmp_path: Path, path: str) -> None:
    engine.load_model("m")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigInvalid, match=POLL + ".* expected a path inside the model's directory"):
        engine.load_model("m", config=ONNX, files={f"file:{path}": onnx(1)})
    assert (sorted(tmp_path.rglob("*")), answer(engine)) == (before, 3)


@pytest.mark.parametrize("files", [{"file:1": b"", "file:1/model.onnx": b""}, {f"file:{'a' * 300}": b""}])
def test_files_that_cannot_be_written_say_so(engine: Engine, folders: Path, files: Mapping[str, bytes]) -> None:
    with pytest.raises(ConfigInvalid, match=POLL):
        engine.load_model("m", config=ONNX, files=files)
    settles(lambda: not list(folders.iterdir()), "nothing is left")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("{", "Expecting property name"),
        ("[]", "expected an object"),
        ('{"max_batch_size": "many"}', "max_batch_size"),
        ('{"no_such_field": 1}', "no_such_field"),
        ("[" * 100_000, "recursion"),
        (f'{{"name": "{"m" * 2**20}"}}', "more than 1048576 characters"),
    ],
)
def test_a_wrong_configuration_keeps_what_serves(engine: Engine, config: str, text: str) -> None:
    engine.load_model("m")
    with pytest.raises(ConfigInvalid, match=f"{POLL}Invalid config override: .*{text}"):
        engine.load_model("m", config=config)
    assert answer(engine) == 3


def test_a_configuration_is_of_this_model(engine: Engine) -> None:
    with pytest.raises(ConfigInvalid, match="unexpected directory name 'm' for model 'other'"):
        engine.load_model("m", config='{"name": "other", "backend": "onnxruntime"}')


def test_files_that_cannot_be_loaded_keep_what_serves(engine: Engine) -> None:
    engine.load_model("m")
    with pytest.raises(ModelUnavailable, match="load failed for model 'm': version 1 is at UNAVAILABLE state"):
        engine.load_model("m", config=ONNX, files={"file:1/model.onnx": b"broken"})
    assert answer(engine) == 3
    engine.load_model("m")
    assert not engine.failures


def test_files_need_a_configuration(engine: Engine) -> None:
    with pytest.raises(ConfigInvalid, match="so that they need a 'config'"):
        engine.load_model("m", files={"file:1/model.onnx": onnx(1)})


@pytest.mark.parametrize(
    ("config", "files"),
    [
        (PYTHON, {"file:1/model.py": CODE}),
        (PYTHON.replace('"python"', '"python", "default_model_filename": "a.onnx"'), {"file:1/a.onnx": CODE}),
        (ONNX.replace("}", ', "model_operations": {"op_library_filename": ["a.so"]}}'), {"file:1/model.onnx": onnx(1)}),
        (
            ONNX.replace("}", ', "parameters": {"kushi.alternatives": {"string_value": "python"}}}'),
            {"file:1/model.onnx": onnx(1), "file:1/model.py": CODE},
        ),
        (
            '{"backend": "openvino", "parameters": {"CPU_EXTENSION_PATH": {"string_value": "1/a.so"}}}',
            {"file:1/model.xml": b"", "file:1/model.bin": b"", "file:1/a.so": b""},
        ),
        ('{"backend": "no_such"}', {"file:1/model.onnx": onnx(1)}),
        ("{}", {"file:1/model.py": CODE}),
    ],
)
def test_files_that_may_run_as_code_need_leave(engine: Engine, config: str, files: Mapping[str, bytes]) -> None:
    with pytest.raises(ConfigInvalid, match=POLL):
        engine.load_model("m", config=config, files=files)
    assert (versions(engine), index(engine), engine.failures) == ([], [{"name": "m"}], {})


@pytest.mark.parametrize(
    "config",
    [
        PYTHON,
        PYTHON.replace('"python"', '"python", "default_model_filename": "model.onnx"'),
        ONNX.replace("}", ', "parameters": {"EXECUTION_ENV_PATH": {"string_value": "/tmp/x.tar.gz"}}}'),
        ONNX.replace("}", ', "model_operations": {"op_library_filename": ["a.so"]}}'),
        ONNX.replace("}", ', "parameters": {"kushi.alternatives": {"string_value": "python"}}}'),
    ],
)
def test_a_configuration_that_names_other_code_needs_leave(engine: Engine, config: str) -> None:
    engine.load_model("m")
    with pytest.raises(ConfigInvalid, match=POLL):
        engine.load_model("m", config=config)
    assert answer(engine) == 3


def test_a_python_model_may_have_another_configuration(tmp_path: Path, folders: Path) -> None:
    folder = tmp_path / "models" / "code"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_bytes(CODE)
    with Engine(tmp_path / "models", options=EXPLICIT) as engine:
        engine.load_model("code", config=PYTHON)
        assert engine.infer("code", {"IN": np.zeros(1, np.int32)})["OUT"].tolist() == [7]
        other = PYTHON[:-1] + ', "parameters": {"kushi.python": {"string_value": "/bin/sh"}}}'
        with pytest.raises(ConfigInvalid, match=r"'kushi\.python' may run as code: that needs --model-"):
            engine.load_model("code", config=other)


def test_files_that_were_brought_in_vain_are_removed(engine: Engine, folders: Path) -> None:
    for number in range(5):
        with pytest.raises(ModelUnavailable):
            engine.load_model(f"x{number}", config=ONNX, files={"file:1/model.onnx": b"broken"})
    settles(lambda: not list(folders.iterdir()), "nothing is left")


def test_a_model_of_files_has_a_name_that_shows(engine: Engine) -> None:
    for name in (".", ".hidden"):
        with pytest.raises(ConfigInvalid, match="cannot be called"):
            engine.load_model(name, config=ONNX, files={"file:1/model.onnx": onnx(1)})


def test_with_leave_they_are_loaded(tmp_path: Path, folders: Path) -> None:
    plus(tmp_path / "models", "m")
    with Engine(tmp_path / "models", options=with_leave("all")) as engine:
        engine.load_model("code", config=PYTHON, files={"file:1/model.py": CODE})
        assert engine.infer("code", {"IN": np.zeros(1, np.int32)})["OUT"].tolist() == [7]


def test_no_files_at_all_may_be_allowed(tmp_path: Path) -> None:
    plus(tmp_path, "m", (1, 2))
    with Engine(tmp_path, options=with_leave("none")) as engine:
        with pytest.raises(ConfigInvalid, match="not allowed"):
            engine.load_model("m", config=ONNX, files={"file:1/model.onnx": onnx(1)})
        engine.load_model("m", config=specific(1))
        assert answer(engine) == 1


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"config": 5}, "config is int, expected a text of JSON"),
        ({"files": {"1/model.onnx": b""}}, "unrecognized load parameter '1/model.onnx'."),
        ({"files": {"file:1/model.onnx": "text"}}, "'file:1/model.onnx' is str, expected bytes"),
    ],
)
def test_a_program_states_them_right(engine: Engine, given: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        engine.load_model("m", **given)  # type: ignore[arg-type] # the point


def test_code_that_changes_is_loaded_again_from_the_files_that_were_brought(tmp_path: Path, folders: Path) -> None:
    plus(tmp_path / "models", "m")
    options = EngineOptions(models=ModelOptions(control="explicit", load_files="all", reload_python=True))
    with Engine(tmp_path / "models", options=options) as engine:
        engine.load_model("code", config=PYTHON, files={"file:1/model.py": CODE})
        (file,) = folders.rglob("model.py")
        file.write_bytes(CODE.replace(b"[7]", b"[8]"))
        eventually(lambda: engine.infer("code", {"IN": np.zeros(1, np.int32)})["OUT"].tolist() == [8], "it is loaded")
