"""`kushi new` around models of users: what is written answers, and its own test passes"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import onnx
import pytest
from onnx import TensorProto, helper

from runners.cli import main
from tests import models
from tests.serving import ROOT, environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Shapes = Mapping[str, Sequence[int | str]]

SAMPLE = ROOT / "runners/new_service/templates/colours/1/model.onnx"


def network(nodes: Sequence[onnx.NodeProto], inputs: Shapes, outputs: Shapes, name: str = "m") -> onnx.ModelProto:
    taken, answered = (
        [helper.make_tensor_value_info(each, TensorProto.FLOAT, shape) for each, shape in side.items()]
        for side in (inputs, outputs)
    )
    graph = helper.make_graph(nodes, name, taken, answered)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def mean(name: str, shape: Sequence[int | str]) -> onnx.ModelProto:
    """Of each channel of a picture"""
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["scores"]),
    ]
    return network(nodes, {"image": shape}, {"scores": ["N", shape[1]]}, name)


def passes(folder: Path) -> str:
    """What pytest prints of the service's own test"""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_model_of_the_sample_is_what_it_is_said_to_be() -> None:
    assert onnx.load(SAMPLE) == mean("colours", ["N", 3, 32, 32])


def test_a_model_of_grey_pictures_is_asked_with_them(tmp_path: Path) -> None:
    onnx.save(mean("m", ["N", 1, 28, 28]), tmp_path / "digits.onnx")
    assert main(["new", str(tmp_path / "own"), "--model", str(tmp_path / "digits.onnx")]) == 0
    assert "1 passed" in passes(tmp_path / "own")


def test_a_model_of_arrays_is_asked_by_the_names_of_its_inputs(tmp_path: Path) -> None:
    nodes = [helper.make_node(kind, ["input.1", "class"], [kind.lower()]) for kind in ("Add", "Mul")]
    file = tmp_path / "two.onnx"
    shape: Sequence[int | str] = ["N", 3]
    onnx.save(network(nodes, {"input.1": shape, "class": shape}, {"add": shape, "mul": shape}), file)
    assert main(["new", str(tmp_path / "own"), "--model", str(file)]) == 0
    assert "1 passed" in passes(tmp_path / "own")


def test_a_folder_of_a_model_of_texts_is_taken_with_its_configuration(tmp_path: Path, repository: Path) -> None:
    models.write(repository, "echo", models.identity("BYTES"), "max_batch_size: 4")
    assert main(["new", str(tmp_path / "own"), "--model", str(repository / "echo")]) == 0
    assert (tmp_path / "own/model_repository/echo/config.pbtxt").is_file()
    assert "1 passed" in passes(tmp_path / "own")


def test_a_model_in_its_own_folder_is_named_by_a_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m/1").mkdir(parents=True)
    onnx.save(mean("m", ["N", 1, 28, 28]), tmp_path / "m/1/model.onnx")
    monkeypatch.chdir(tmp_path / "m/1")
    assert main(["new", "../own", "--model", ".."]) == 1
    assert "lies in the folder of the model" in capsys.readouterr().err
    assert main(["new", "../../own", "--model", ".."]) == 0
    assert (tmp_path / "own/model_repository/m/1/model.onnx").is_file()
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["1"]


def test_what_is_no_file_of_a_model_and_what_cannot_be_copied_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.txt").touch()
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.onnx").symlink_to("nowhere")
    for name, reason in {"m.txt": "is no model: expected an *.onnx", "m": "cannot be copied: "}.items():
        assert main(["new", str(tmp_path / "own"), "--model", str(tmp_path / name)]) == 1
        assert f"'{tmp_path / name}' {reason}" in capsys.readouterr().err
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "there is no such file"), (b"no model", "cannot be loaded")],
)
def test_a_model_that_does_not_load_leaves_nothing(
    tmp_path: Path, content: bytes | None, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.onnx"
    if content:
        file.write_bytes(content)
    assert main(["new", str(tmp_path / "own"), "--model", str(file)]) == 1
    error = capfd.readouterr().err
    assert error.startswith("kushi new: error: ")
    assert reason in error
    assert str(file) in error
    assert not (tmp_path / "own").exists()
