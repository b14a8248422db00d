"""Plans of TensorRT for RTX: built by itself, which needs no GPU, looked into where it stands in, and never served."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import onnx
import pytest
import tensorrt_rtx  # type: ignore[import-not-found, unused-ignore]
from onnx import helper

from runners import Engine, EngineOptions
from runners.cli import main
from tests import models
from tests.serving import ROOT
from tests.waiting import eventually

from .plans import ADD_SUB, ONE_GPU, buildable, write
from .test_running import check_add_sub

if TYPE_CHECKING:
    from pathlib import Path

LENIENT = EngineOptions(exit_on_error=False)
VERSION = tensorrt_rtx.__version__


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.add_sub(["batch", 2], "FP32").SerializeToString())
    return path


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process with nothing that stands in: its builder, no GPU and no driver"""
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    environment["PYTHONPATH"] = str(ROOT / "build/stand-in/rtx")
    return subprocess.run(
        [sys.executable, "-m", "runners", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def export(source: Path, target: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return command("export", str(source), "--to", "tensorrt-rtx", "--output", str(target), *flags)


def test_a_plan_is_built_without_a_gpu_and_says_that_it_was_not_compared(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "plans/model.plan"
    done = export(source, target, "--precision", "fp16", "--no-tf32", "--workspace", "64", "--optimization-level", "1")
    assert done.returncode == 0, done.stderr
    assert f"wrote {target}" in done.stdout
    assert f"for TensorRT-RTX {VERSION} alone, and was not compared: nothing here executes it" in done.stdout
    assert "kushi serve does not serve it" in done.stdout
    assert struct.unpack_from("<4sI16x4B", target.read_bytes()) == (b"vtrt", 0, *map(int, VERSION.split(".")))
    found = command("inspect", str(target))
    assert found.returncode == 0
    assert f"written by TensorRT-RTX {VERSION}" in found.stdout
    assert "not served here" in found.stdout
    assert "cannot be opened here: the driver of NVIDIA cannot be used" in found.stdout


def test_a_plan_is_for_the_gpus_that_are_stated(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.plan"
    assert export(source, target, "--compute-capabilities", "8.6,12.0").returncode == 0
    done = export(source, tmp_path / "other.plan", "--compute-capabilities", "8.6,7.0")
    assert done.returncode == 1
    assert "compute capability '7.0': TensorRT-RTX" in done.stderr
    assert "has 7.5, 8.0, 8.6" in done.stderr
    again = export(source, target)
    assert "exists: --force replaces it" in again.stderr
    assert export(source, target, "--force").returncode == 0


def test_shape_tensors_have_the_values_that_are_stated(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    model = models.model(
        [helper.make_node("Expand", ["X", "S"], ["Y"])],
        [models.tensor("X", "FP32", [1, 1]), models.tensor("S", "INT64", [2])],
        [models.tensor("Y", "FP32", ["rows", "columns"])],
    )
    onnx.save(model, source)
    target = tmp_path / "model.plan"
    done = export(source, target)
    assert "input 'S' is a shape tensor, and nothing says which values it takes" in done.stderr
    assert "as S:64x64" in done.stderr
    done = export(source, target, "--min", "S:1x1", "--opt", "S:2x2", "--max", "S:4x8")
    assert done.returncode == 0, done.stderr


def test_a_file_that_it_cannot_read_is_named_with_its_reason(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    source.write_bytes(b"nothing")
    done = export(source, tmp_path / "model.plan")
    assert done.returncode == 1
    assert f"TensorRT cannot read '{source}'" in done.stderr
    assert not (tmp_path / "model.plan").exists()


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--timing-cache", "x"), "--timing-cache is not for --to tensorrt-rtx: nothing is measured"),
        (("--samples", "x"), "--samples is not for --to tensorrt-rtx: nothing here executes such a plan"),
        (("--atol", "1"), "--atol is not for --to tensorrt-rtx"),
        (("--version-compatible",), "--version-compatible is not for --to tensorrt-rtx: a plan is for one version"),
        (("--hardware-compatible",), "or those of --compute-capabilities"),
        (("--gpu", "1"), "no GPU is needed"),
        (("--with-onnx",), "--output is the file of the plan"),
        (("--version", "next"), "--output is the file of the plan"),
        (("--input", "A:FP32:2"), "--input is for a PyTorch model: SOURCE is an ONNX file already"),
        (("--opset", "17"), "--opset is for a PyTorch model"),
        (("--optimization-level", "6"), "expected a number from 0 to 5, got 6"),
    ],
)
def test_flags_that_it_does_not_have_are_refused_by_name(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], error: str
) -> None:
    target = tmp_path / "model.plan"
    assert main(["export", str(source), "--to", "tensorrt-rtx", "--output", str(target), *flags]) == 1
    assert error in capsys.readouterr().err
    assert not target.exists()


def test_flags_for_it_are_refused_elsewhere(source: Path, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--to", "tensorrt", "--output", str(repository / "m"), "--compute-capabilities", "8.6"]
    assert main(["export", str(source), *flags]) == 1
    assert "--compute-capabilities is for --to tensorrt-rtx" in capsys.readouterr().err


def test_a_plan_is_looked_into_where_there_is_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.plan"
    path.write_bytes(tensorrt_rtx.written_for_rtx(ADD_SUB))
    assert main(["inspect", str(path), "--layers"]) == 0
    out = capsys.readouterr().out
    assert f"written by TensorRT-RTX {VERSION}" in out
    assert "input   A  FP32  [-1,2]" in out
    assert "profile 0: from [1,2] to [8,2], best [4,2]" in out
    assert "layer   compute SUM" in out
    assert main(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_rtx"] is True


def test_of_a_plan_of_another_version_the_reason_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.plan"
    path.write_bytes(tensorrt_rtx.written_for_rtx(ADD_SUB, "1.4.0.76"))
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert "written by TensorRT-RTX 1.4.0.76" in out
    assert f"cannot be opened by TensorRT-RTX {VERSION} on Stand-in GPU, compute capability 9.0" in out
    assert "the engine is of another version" in out


def test_serving_one_is_refused_by_name_with_what_to_do(repository: Path) -> None:
    write(repository, "m", tensorrt_rtx.written_for_rtx(ADD_SUB), ONE_GPU)
    with Engine(repository, options=LENIENT) as engine:
        text = str(engine.failures["m"])
    assert f"was written by TensorRT-RTX {VERSION}, and plans of TensorRT for RTX are not served" in text
    assert "kushi export --to tensorrt" in text


def test_one_of_tensorrt_is_built_and_served_where_its_onnx_file_is_beside_it(repository: Path) -> None:
    text = f'backend: "tensorrt" {ONE_GPU}max_batch_size: 8'
    folder = write(repository, "m", tensorrt_rtx.written_for_rtx(ADD_SUB), text)
    (folder / "model.onnx").write_bytes(buildable(ADD_SUB))
    with Engine(repository, options=LENIENT) as engine:
        eventually(lambda: engine.is_model_ready("m"), "the plan is built and served")
        check_add_sub(engine, "m", 3)
