"""kushi init, kushi config and kushi serve --dry-run."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import numpy as np
import pytest

from runners import Engine
from runners.cli import main
from runners.repository.config import parse
from tests import models

if TYPE_CHECKING:
    from pathlib import Path

Said = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """OUTPUT0 = INPUT0 + 5, rows of any size"""
    path = tmp_path / "plus.onnx"
    path.write_bytes(models.plus_constant(5).SerializeToString())
    return path


def test_a_file_becomes_a_model_that_can_be_served_and_changed(tmp_path: Path, file: Path, capsys: Said) -> None:
    repository = tmp_path / "repository"
    assert main(["init", str(file), "--repository", str(repository), "--max-batch-size", "7"]) == 0
    said = capsys.readouterr()
    assert (f"kushi serve {repository}" in said.out, said.err) == (True, "")
    text = (repository / "plus" / "config.pbtxt").read_text()
    assert text.startswith("# Of plus.onnx.")
    assert parse(text, "config.pbtxt").max_batch_size == 7
    # each piece of advice can be taken
    advised = "\n".join(line.removeprefix("# ") if line.endswith(("}", "]")) else line for line in text.splitlines())
    (repository / "plus" / "config.pbtxt").write_text(advised.replace("dynamic_batching { }", ""))
    with Engine(repository) as engine:
        config = engine.get_model_config("plus")
        assert config["dynamic_batching"]["max_queue_delay_microseconds"] in {500, "500"}
        assert config["version_policy"] == {"all": {}}
        given = np.ones((2, 1), np.int32)
        assert np.asarray(engine.infer("plus", given)["OUTPUT0"]).tolist() == [[6], [6]]


def test_what_is_there_stays_as_it_is(tmp_path: Path, file: Path, capsys: Said) -> None:
    arguments = ["init", str(file), "--repository", str(tmp_path / "repository")]
    assert main(arguments) == 0
    config = tmp_path / "repository" / "plus" / "config.pbtxt"
    config.write_text("# mine")
    capsys.readouterr()
    assert main(arguments) == 1
    assert "exists: choose another --name" in capsys.readouterr().err
    assert config.read_text() == "# mine"
    assert main([*arguments, "--name", "other"]) == 0
    assert {path.name for path in (tmp_path / "repository").iterdir()} == {"plus", "other"}


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("missing.onnx", None, "there is no such file"),
        ("text.txt", b"text", "is no model: expected an"),
        ("broken.onnx", b"no model", "broken.onnx"),
    ],
)
def test_what_does_not_load_leaves_nothing_behind(
    tmp_path: Path, capsys: Said, name: str, content: bytes | None, text: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert main(["init", str(tmp_path / name), "--repository", str(tmp_path / "repository")]) == 1
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1
    assert not (tmp_path / "repository").exists()
    assert {path.name for path in tmp_path.iterdir()} == ({name} if content is not None else set())


@pytest.mark.parametrize("what", ["a file", "below a file", "a link to nowhere", "a name with a slash"])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, file: Path, capsys: Said, what: str) -> None:
    repository, name = tmp_path / "repository", "plus"
    if what == "a link to nowhere":
        repository.mkdir()
        (repository / name).symlink_to(tmp_path / "nowhere")
    elif what == "a name with a slash":
        name = "../plus"
    else:
        repository.write_text("")
        repository = repository / "below" if what == "below a file" else repository
    assert main(["init", str(file), "--repository", str(repository), "--name", name]) == 1
    error = capsys.readouterr().err
    assert (error.count("\n"), error.startswith("kushi init: error: ")) == (1, True), error


def test_a_name_with_lines_of_its_own_is_no_configuration(tmp_path: Path, file: Path, capsys: Said) -> None:
    odd = file.with_name('a\nbackend: "python" #.onnx')
    file.rename(odd)
    assert main(["init", str(odd), "--repository", str(tmp_path / "repository"), "--name", "m"]) == 1
    error = capsys.readouterr().err
    assert ("expected printable UTF-8 text" in error, error.count("\n")) == (True, 1)
    assert not (tmp_path / "repository").exists()


def test_a_configuration_is_shown_as_it_is_in_effect(tmp_path: Path, file: Path, capsys: Said) -> None:
    models.write_add_sub(tmp_path)
    with Engine(tmp_path) as engine:
        expected = engine.get_model_config("add_sub")
    assert main(["config", str(tmp_path / "add_sub")]) == 0
    text = capsys.readouterr().out
    assert main(["config", str(tmp_path / "add_sub"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "add_sub"
    # it can be a config.pbtxt again
    (tmp_path / "add_sub" / "config.pbtxt").write_text(text)
    with Engine(tmp_path) as engine:
        assert engine.get_model_config("add_sub") == expected
    assert main(["config", str(file)]) == 0
    assert "max_batch_size: 4" in capsys.readouterr().out
    assert main(["config", str(file), "--backend-config=default-max-batch-size=9"]) == 0
    assert "max_batch_size: 9" in capsys.readouterr().out


def test_a_configuration_that_cannot_be_completed_is_one_line(tmp_path: Path, capsys: Said) -> None:
    models.write_add_sub(tmp_path)
    (tmp_path / "add_sub" / "1" / "model.onnx").write_bytes(b"nothing")
    for path in (tmp_path / "add_sub", tmp_path / "nowhere"):
        assert main(["config", str(path)]) == 1
        error = capsys.readouterr().err
        assert error.startswith("kushi config: error: ")
        assert path.name in error


def test_a_dry_run_says_what_would_be_served_and_where(tmp_path: Path, capsys: Said) -> None:
    models.write_add_sub(tmp_path)
    models.write(tmp_path, "other", models.plus_constant(1), "max_batch_size: -3")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = ["--address=127.0.0.1", "--grpc-port=0", "--metrics-port=0", "--http-port"]
        for arguments, code, lines in (
            ([*flags, "0"], 1, ["add_sub: served, onnxruntime, version 1", "other: not served: "]),
            ([*flags, "0", "--exit-on-error=false"], 0, ["HTTP service at 127.0.0.1:0", "gRPC service at 127.0.0.1:0"]),
            ([*flags, "0", "--model-control-mode=explicit"], 0, ["no model is loaded at the start"]),
            ([*flags, "0", "--model-control-mode=explicit", "--load-model=add_sub"], 0, ["add_sub: served"]),
            ([*flags, str(port), "--exit-on-error=false"], 1, [f"127.0.0.1:{port}' already in use"]),
        ):
            assert main(["serve", "--dry-run", str(tmp_path), *arguments]) == code
            said = capsys.readouterr().out
            assert all(line in said for line in lines), said
    assert main(["serve", str(tmp_path), "--dry-run", "--model-control-mode=explicit", "--load-model=none"]) == 1
    assert "--load-model=none: there is no such model" in capsys.readouterr().err
