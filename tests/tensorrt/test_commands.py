"""`kushi export --to tensorrt` and `kushi inspect`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
import tensorrt  # type: ignore[import-not-found, unused-ignore]
from onnx import helper

from runners import Engine, EngineOptions
from runners.cli import main
from tests import models
from tests.waiting import eventually

from .plans import ADD_SUB, ONE_GPU, buildable, plan, tensor, write
from .test_running import check_add_sub

if TYPE_CHECKING:
    from pathlib import Path

SHAPES = ("--min", "A:1x2,B:1x2", "--opt", "A:4x2,B:4x2", "--max", "A:16x2,B:16x2")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(buildable(ADD_SUB))
    return path


def export(source: Path, target: Path, *flags: str) -> int:
    return main(["export", str(source), "--to", "tensorrt", "--output", str(target), *flags])


def stands_in(model: onnx.ModelProto, made: dict[str, object], folder: Path) -> Path:
    """The file of a model of which the TensorRT that stands in builds this plan"""
    model.metadata_props.append(onnx.StringStringEntryProto(key="stand-in", value=json.dumps(made)))
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_a_plan_is_built_compared_and_served(
    source: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(source, repository / "m", *SHAPES, "--with-onnx") == 0
    out, progress = capsys.readouterr()
    assert "building a plan for Stand-in GPU, compute capability 9.0" in progress
    assert "2 layers" in out
    assert "SUM" in out
    assert "random numbers: give --samples" in out
    assert (repository / "m/1/model.onnx").read_bytes() == source.read_bytes()
    assert 'backend: "tensorrt"' in (repository / "m/config.pbtxt").read_text()
    with Engine(repository) as engine:
        assert engine.get_model_config("m")["max_batch_size"] == 16
        check_add_sub(engine, "m", 16)


def test_without_shapes_the_batch_is_that_of_the_flag(source: Path, repository: Path) -> None:
    assert export(source, repository / "m", "--max-batch-size", "4") == 0
    with Engine(repository) as engine:
        assert engine.get_model_config("m")["max_batch_size"] == 4


def test_samples_are_what_is_compared(
    source: Path, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = tmp_path / "rows.npz"
    np.savez(samples, A=np.ones((3, 2), np.float32), B=np.ones((3, 2), np.float32))
    assert export(source, repository / "m", "--samples", str(samples)) == 0
    assert "compared with ONNX Runtime on the samples" in capsys.readouterr().out


def test_random_numbers_have_shapes_that_the_profile_takes(tmp_path: Path, repository: Path) -> None:
    made = plan(
        [tensor(name, [-1, -1]) for name in ("A", "B")],
        [tensor(name, [-1, -1], formula=formula) for name, formula in (("SUM", "A + B"), ("DIFFERENCE", "A - B"))],
    )
    model = models.model(
        [helper.make_node("Add", ["A", "B"], ["SUM"]), helper.make_node("Sub", ["A", "B"], ["DIFFERENCE"])],
        [models.tensor(name, "FP32", ["batch", "width"]) for name in ("A", "B")],
        [models.tensor(name, "FP32", ["batch", "width"]) for name in ("SUM", "DIFFERENCE")],
    )
    source = stands_in(model, made, tmp_path)
    shapes = ("--min", "A:1x224,B:1x224", "--opt", "A:4x224,B:4x224", "--max", "A:8x256,B:8x256")
    assert export(source, repository / "m", *shapes) == 0


def test_shape_tensors_are_asked_with_the_values_that_are_the_most_frequent(
    tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(
        [tensor("X", [1, 1]), tensor("S", [2], "INT64", on_host=True)],
        [tensor("Y", [-1, -1], formula="np.broadcast_to(X, tuple(S))")],
    )
    model = models.model(
        [helper.make_node("Expand", ["X", "S"], ["Y"])],
        [models.tensor("X", "FP32", [1, 1]), models.tensor("S", "INT64", [2])],
        [models.tensor("Y", "FP32", ["rows", "columns"])],
    )
    source = stands_in(model, made, tmp_path)
    assert export(source, repository / "m", "--min", "S:3x3", "--opt", "S:4x4", "--max", "S:8x8") == 0
    assert main(["inspect", str(repository / "m/1/model.plan")]) == 0
    assert "values in profile 0: from [3,3] to [8,8], best [4,4]" in capsys.readouterr().out
    with Engine(repository) as engine:
        answer = engine.infer("m", {"X": np.ones((1, 1), np.float32), "S": np.array([5, 6])})
        assert np.asarray(answer["Y"]).shape == (5, 6)


def test_a_request_has_as_many_rows_as_the_plan_takes_at_least(
    source: Path, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(source, repository / "m", "--max", "A:32x2,B:32x2") == 0
    assert "a request with 32 rows takes" in capsys.readouterr().out
    samples = tmp_path / "rows.npz"
    np.savez(samples, A=np.ones((6, 2), np.float32), B=np.ones((6, 2), np.float32))
    shapes = ("--min", "A:4x2,B:4x2", "--max", "A:8x2,B:8x2")
    assert export(source, repository / "n", *shapes, "--samples", str(samples)) == 0
    assert "a request with 4 rows takes" in capsys.readouterr().out


def test_too_few_samples_are_refused_before_the_build(
    source: Path, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = tmp_path / "rows.npz"
    np.savez(samples, A=np.ones((3, 2), np.float32), B=np.ones((3, 2), np.float32))
    assert export(source, repository / "m", "--min", "A:4x2,B:4x2", "--samples", str(samples)) == 1
    error = capsys.readouterr().err
    assert "has 3 rows, and the plan takes at least 4 at a time" in error
    assert "building a plan" not in error


def test_the_onnx_file_is_put_there_with_all_that_another_build_needs(tmp_path: Path, repository: Path) -> None:
    model = models.model(
        [
            helper.make_node("Add", ["A", "B"], ["WITHOUT"]),
            helper.make_node("Add", ["WITHOUT", "W"], ["SUM"]),
            helper.make_node("Sub", ["A", "B"], ["DIFFERENCE"]),
        ],
        [models.tensor(name, "FP32", ["batch", "width"]) for name in ("A", "B")],
        [models.tensor(name, "FP32", ["batch", "width"]) for name in ("SUM", "DIFFERENCE")],
        [onnx.numpy_helper.from_array(np.zeros(2, np.float32), "W")],
    )
    made = plan(
        [tensor(name, [-1, -1]) for name in ("A", "B")],
        [tensor(name, [-1, -1], formula=formula) for name, formula in (("SUM", "A + B"), ("DIFFERENCE", "A - B"))],
    )
    model.metadata_props.append(onnx.StringStringEntryProto(key="stand-in", value=json.dumps(made)))
    source = tmp_path / "source/net.onnx"
    (source.parent / "weights").mkdir(parents=True)
    onnx.save(model, source, save_as_external_data=True, location="weights/all.bin", size_threshold=0)
    # files that it does not name, though their names stand in it
    for name in ("all.bin", "SUM", "A"):
        (source.parent / name).touch()
    assert export(source, repository / "m", *SHAPES, "--with-onnx") == 0
    folder = repository / "m/1"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {"model.plan", "model.onnx", "weights/all.bin"}
    text = (repository / "m/config.pbtxt").read_text()
    for what, rows in (("min", 1), ("opt", 4), ("max", 16)):
        assert f'key: "kushi.{what}_shapes" value {{ string_value: "A:{rows}x2,B:{rows}x2" }}' in text
    write(repository, "m", {**ADD_SUB, "gpu": "8.6"})
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        eventually(lambda: engine.is_model_ready("m"), "a plan is built of what is there")
        check_add_sub(engine, "m", 16)
        (timings,) = (folder / "tensorrt").glob("*.timing")
        assert timings.name == "Stand-in-GPU-9-0-10.14.1.48.timing"
    assert export(source, repository / "n", *SHAPES) == 0
    assert "_shapes" not in (repository / "n/config.pbtxt").read_text()


def test_a_plan_for_later_versions_is_served_where_its_code_may_run(
    source: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(source, repository / "m", "--version-compatible") == 0
    out = capsys.readouterr().out
    assert "2 layers" in out
    assert "--backend-config=tensorrt,version-compatible=true" in out
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        assert "contains host code" in str(engine.failures["m"])
    allowed = EngineOptions(backend_config={"tensorrt": {"version-compatible": "true"}})
    with Engine(repository, options=allowed) as engine:
        check_add_sub(engine, "m", 8)


def test_the_next_version_has_the_labels_of_the_model(source: Path, repository: Path) -> None:
    assert export(source, repository / "m") == 0
    config, labels = repository / "m/config.pbtxt", repository / "m/labels.txt"
    config.write_text(config.read_text().replace('"SUM"', '"SUM" label_filename: "labels.txt"'))
    labels.write_text("left\nright\n")
    assert export(source, repository / "m", "--version", "next") == 0
    assert sorted(path.name for path in labels.parent.iterdir()) == ["1", "2", "config.pbtxt", "labels.txt"]


def test_what_differs_is_not_written(tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {**ADD_SUB, "outputs": [{**ADD_SUB["outputs"][0], "formula": "A + B + 0.5"}, ADD_SUB["outputs"][1]]}
    source = tmp_path / "model.onnx"
    source.write_bytes(buildable(wrong))
    assert export(source, repository / "m") == 1
    assert "output 'SUM' of the plan differs from ONNX Runtime's by up to 5.0e-01" in capsys.readouterr().err
    assert not (repository / "m").exists()
    assert export(source, repository / "m", "--atol", "1") == 0


def test_half_precision_converts_the_file_first(
    source: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(source, repository / "m", "--precision", "fp16", "--max-batch-size", "2", "--with-onnx") == 0
    beside = onnx.load(repository / "m/1/model.onnx")
    assert "Cast" in {node.op_type for node in beside.graph.node}
    assert export(source, repository / "n", "--precision", "int4") == 1
    assert "precision 'int4' is not known, expected fp32 or fp16" in capsys.readouterr().err


def test_what_builds_have_measured_is_kept_and_that_of_another_gpu_made_anew(
    source: Path, repository: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "timings"
    assert export(source, repository / "m", "--timing-cache", str(cache)) == 0
    measured = cache.read_bytes()
    assert measured
    cache.write_bytes(b"of another GPU")
    assert export(source, repository / "m", "--version", "next", "--timing-cache", str(cache)) == 0
    assert cache.read_bytes() == measured


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--max", "C:1x2"), "the max shapes name the input 'C', the model has A, B"),
        (("--min", "A:nothing"), "--min: expected NAME:DIMS"),
        (("--optimization-level", "6"), "expected a number from 0 to 5, got 6"),
        (("--version", "none"), "--version: expected a number from 1 or next, got 'none'"),
        (("--input", "A:FP32:2"), "--input is for a PyTorch model: SOURCE is an ONNX file already"),
        (("--output-name", "Y"), "--output-name is for a PyTorch model"),
        (("--opset", "17"), "--opset is for a PyTorch model"),
    ],
)
def test_flags_that_are_wrong_are_named(
    source: Path, repository: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], error: str
) -> None:
    assert export(source, repository / "m", *flags) == 1
    assert error in capsys.readouterr().err
    assert not (repository / "m").exists()


def test_a_file_that_tensorrt_cannot_read_is_named_with_its_reason(
    tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "other.onnx"
    source.write_bytes(models.add_sub(["batch", 2], "FP32").SerializeToString())
    assert export(source, repository / "m") == 1
    assert "TensorRT cannot read" in capsys.readouterr().err


def test_a_plan_is_looked_into(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(repository, "m", ADD_SUB) / "model.plan"
    assert main(["inspect", str(path), "--layers"]) == 0
    out = capsys.readouterr().out
    assert "written by TensorRT 10.14.1.48" in out
    assert "input   A  FP32  [-1,2]" in out
    assert "profile 0: from [1,2] to [8,2], best [4,2]" in out
    assert "layer   compute SUM" in out
    assert main(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["profiles"] == 1


def test_of_a_plan_of_another_version_it_is_shown_who_wrote_it(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(repository, "m", tensorrt.written(ADD_SUB, "10.3.0.26"), ONE_GPU) / "model.plan"
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert "written by TensorRT 10.3.0.26" in out
    assert "cannot be opened here" in out


def test_what_is_no_plan_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.plan"
    path.write_bytes(b"nothing")
    assert main(["inspect", str(path)]) == 1
    assert "is not a TensorRT plan" in capsys.readouterr().err
