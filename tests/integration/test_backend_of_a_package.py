"""A backend that another package brings: `tests/matrix_backend`, installed by pip, and known to nothing else."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput

from runners import Engine, EngineOptions
from runners.errors import ConfigInvalid, KushiError, Unsupported
from runners.repository import discovery
from tests import models
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tests.conftest import StartServer

PACKAGE: Final = ROOT / "tests" / "matrix_backend"
MATRIX: Final = [[1.0, 0.0, 0.5], [0.0, 2.0, 0.25]]
ROWS: Final = np.array([[1, 2], [3, 4]], np.float32)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package, and nothing else, installed in it"""
    folder = tmp_path_factory.mktemp("site")
    uv = Path(sys.executable).with_name("uv")
    given = ["--quiet", "--no-deps", "--offline", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([uv, "pip", "install", *given, "--target", folder, PACKAGE], check=True)
    return folder


@pytest.fixture(autouse=True)
def _installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is installed counts from the start of a process: here it is asked for again"""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    discovery.found.cache_clear()
    yield
    discovery.found.cache_clear()


def write(repository: Path, name: str = "m", text: str | None = None, file: str = "model.matrix") -> Path:
    path = repository / name / "1" / file
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(MATRIX))
    if text is not None:
        (repository / name / "config.pbtxt").write_text(text)
    return path


def asked(port: int, model: str = "m") -> NDArray[np.float32]:
    client = InferenceServerClient(f"localhost:{port}")
    rows = InferInput("X", list(ROWS.shape), "FP32")
    rows.set_data_from_numpy(ROWS)
    answer: NDArray[np.float32] = client.infer(model, [rows]).as_numpy("Y")
    client.close()
    return answer


def answer(*repositories: Path, model: str = "m", **config: str) -> NDArray[np.float32]:
    """What an engine answers over HTTP, `config` being settings of the backend"""
    with Engine(*repositories, options=EngineOptions(backend_config={"matrix": config})) as engine:
        return asked(engine.serve_http(port=0), model)


def refused(repository: Path) -> KushiError:
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        (error,) = engine.failures.values()
    return error


@pytest.mark.parametrize(
    ("text", "file"),
    [
        (None, "model.matrix"),
        ('backend: "matrix"', "model.matrix"),
        ('platform: "matrix_json"', "model.matrix"),
        ('default_model_filename: "model.matrix"', "model.matrix"),
        ('backend: "matrix" default_model_filename: "other.json"', "other.json"),
    ],
)
def test_it_is_found_by_its_file_its_platform_and_its_name(repository: Path, text: str | None, file: str) -> None:
    write(repository, text=text, file=file)
    np.testing.assert_array_equal(answer(repository), ROWS @ np.array(MATRIX, np.float32))


def test_a_file_of_it_is_served_without_a_repository(tmp_path: Path) -> None:
    bare = write(tmp_path).rename(tmp_path / "halves.matrix")
    np.testing.assert_array_equal(answer(bare, model="halves"), ROWS @ np.array(MATRIX, np.float32))


def test_its_configuration_is_completed_and_shown(repository: Path) -> None:
    write(repository)
    with Engine(repository) as engine:
        config = engine.get_model_config("m")
    assert (config["backend"], config["platform"], config["max_batch_size"]) == ("matrix", "matrix_json", 4)
    assert [group["count"] for group in config["instance_group"]] == [1]
    assert [(tensor["name"], tensor["dims"]) for tensor in config["output"]] == [("Y", [3])]


def test_its_parameter_counts(repository: Path) -> None:
    write(repository, text='parameters { key: "scale" value { string_value: "3" } }')
    np.testing.assert_array_equal(answer(repository), 3 * ROWS @ np.array(MATRIX, np.float32))


def test_a_parameter_that_it_does_not_have_is_kept_and_a_warning(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(repository, text='parameters { key: "scael" value { string_value: "3" } }')
    with caplog.at_level(logging.WARNING, "runners"):
        np.testing.assert_array_equal(answer(repository), ROWS @ np.array(MATRIX, np.float32))
    text = "model 'm': parameter 'scael' is not known here and has no effect, did you mean 'scale'?"
    assert text in caplog.messages


def test_its_setting_counts(repository: Path) -> None:
    write(repository)
    np.testing.assert_array_equal(answer(repository, digits="0"), np.round(ROWS @ np.array(MATRIX, np.float32)))


@pytest.mark.parametrize(
    ("key", "value", "kind", "text"),
    [
        ("digits", "many", ConfigInvalid, "backend config 'matrix,digits': expected one digit, got 'many'"),
        (
            "digit",
            "1",
            Unsupported,
            "backend config 'matrix,digit' is not supported by this version, did you mean 'digits'?",
        ),
    ],
)
def test_its_settings_are_checked(key: str, value: str, kind: type[KushiError], text: str) -> None:
    with pytest.raises(kind) as raised:
        EngineOptions(backend_config={"matrix": {key: value}})
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[1, 2]", "matrix '{path}': expected 2 dimensions, got 1"),
        ("[[1], [2, 3]]", "matrix '{path}' cannot be read: setting an array element with a sequence."),
    ],
)
def test_what_it_cannot_open_is_named_once(repository: Path, content: str, text: str) -> None:
    path = write(repository)
    path.write_text(content)
    assert str(refused(repository)).startswith(text.format(path=path))


def test_a_configuration_that_does_not_fit_its_tensors_is_refused_as_everywhere(repository: Path) -> None:
    tensors = 'input { name: "X" data_type: TYPE_FP32 dims: 5 } output { name: "Y" data_type: TYPE_FP32 dims: 3 }'
    write(repository, text=f"max_batch_size: 4 {tensors}")
    text = "model 'm', tensor 'X': the model expects 2 dimensions (shape [-1,2])"
    assert str(refused(repository)).startswith(f"{repository}/m/config.pbtxt: {text}")


def test_it_serves_beside_the_others(repository: Path) -> None:
    write(repository)
    models.write(repository, "n", models.plus_constant(1))
    with Engine(repository) as engine:
        np.testing.assert_array_equal(asked(engine.serve_http(port=0)), ROWS @ np.array(MATRIX, np.float32))
        assert engine.infer("n", np.array([[1]], np.int32))["OUTPUT0"] == [[2]]


def test_the_command_serves_it_and_its_help_says_so(repository: Path, start_server: StartServer) -> None:
    write(repository)
    server = start_server(repository, "--backend-config=matrix,digits=0")
    np.testing.assert_array_equal(asked(server.http[1]), np.round(ROWS @ np.array(MATRIX, np.float32)))
    command = [sys.executable, "-m", "runners", "serve", "--help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "or *.matrix, under its stem." in " ".join(text.split())
    assert "; of matrix also digits." in " ".join(text.split())


@pytest.mark.parametrize("file", ["pyproject.toml", "kushi_matrix/descriptor.py", "kushi_matrix/backend.py"])
def test_the_page_shows_it_as_it_is(file: str) -> None:
    blocks = (ROOT / "docs" / "backends.md").read_text(encoding="utf-8").split("```")
    written = (PACKAGE / file).read_text(encoding="utf-8").replace("from runners", "from kushi")
    assert f"{'toml' if file.endswith('toml') else 'python'}\n{written}" in blocks


def test_nothing_else_knows_it() -> None:
    for path in (ROOT / "runners").rglob("*.py"):
        assert "matrix" not in path.read_text(encoding="utf-8"), path
