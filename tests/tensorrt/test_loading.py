"""Plans that cannot be opened, and what is made of that."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tensorrt  # type: ignore[import-not-found, unused-ignore]

from runners import Engine, EngineOptions
from runners.backends.tensorrt.cuda import gpu
from runners.backends.tensorrt.kept import KEPT_PLANS
from runners.errors import InvalidInput
from tests.waiting import eventually

from .plans import ADD_SUB, ONE_GPU, buildable, plan, tensor, write
from .test_running import check_add_sub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LENIENT = EngineOptions(exit_on_error=False)


@pytest.fixture
def two_kinds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The second GPU is of another kind than the first"""
    monkeypatch.setenv("STAND_IN_COMPUTE", "90,80")
    gpu.cache_clear()
    yield
    gpu.cache_clear()


def failure(repository: Path, **settings: str) -> str:
    options = EngineOptions(exit_on_error=False, backend_config={"tensorrt": settings} if settings else {})
    with Engine(repository, options=options) as engine:
        return str(engine.failures.get("m", ""))


def test_a_plan_of_another_version_is_named_with_what_it_needs(repository: Path) -> None:
    write(repository, "m", tensorrt.written(ADD_SUB, "10.3.0.26"), ONE_GPU)
    text = failure(repository)
    assert "was written by TensorRT 10.3.0.26 and cannot be opened by TensorRT 10.14.1.48 on Stand-in GPU" in text
    assert "kushi export --to tensorrt" in text


def test_a_plan_of_another_gpu_is_named_with_what_it_needs(repository: Path) -> None:
    write(repository, "m", {**ADD_SUB, "gpu": "8.6"}, ONE_GPU)
    text = failure(repository)
    assert "compute capability 9.0" in text
    assert "expecting compute 9.0 got compute 8.6" in text


def test_a_version_compatible_plan_is_opened_where_that_is_allowed(repository: Path) -> None:
    write(repository, "m", tensorrt.written({**ADD_SUB, "compatible": True}, "10.3.0.26"), ONE_GPU)
    assert "cannot be opened" in failure(repository)
    assert not failure(repository, **{"version-compatible": "true"})


@pytest.mark.parametrize("content", [b"", b"\x08\x09nothing", b"ftrt" + bytes(24) + b"{"])
def test_a_broken_file_is_an_error_that_names_it(repository: Path, content: bytes) -> None:
    write(repository, "m", content, ONE_GPU)
    assert "model.plan" in failure(repository)


def test_each_kind_of_gpu_has_its_file(repository: Path) -> None:
    files = 'cc_model_filenames { key: "9.0" value: "h100.plan" } cc_model_filenames { key: "8.0" value: "a" }'
    text = f'{ONE_GPU}backend: "tensorrt" {files}'
    write(repository, "m", ADD_SUB, text, file="h100.plan")
    assert not failure(repository)
    (repository / "m/1/h100.plan").rename(repository / "m/1/model.plan")
    assert "h100.plan" in failure(repository)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("instance_group { kind: KIND_CPU }", "expected KIND_GPU: TensorRT computes on GPUs alone"),
        ("instance_group { kind: KIND_GPU gpus: 7 }", "invalid or unsupported gpu id 7"),
        (f"{ONE_GPU}max_batch_size: 9", "TensorRT engine only supports max-batch 8"),
        ('instance_group { kind: KIND_GPU gpus: 0 profile: "1" }', "profile index range 0-0"),
        (
            f'{ONE_GPU}parameters {{ key: "execution_context_allocation_strategy" value {{ string_value: "LAZY" }} }}',
            "Supported values are 'STATIC' and 'ON_PROFILE_CHANGE'",
        ),
        (f"{ONE_GPU}optimization {{ cuda {{ graphs: true graph_spec {{ batch_size: 9 }} }} }}", ">= 1 and <= 8"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(repository: Path, text: str, error: str) -> None:
    write(repository, "m", ADD_SUB, text)
    assert error in failure(repository)


def test_what_no_request_could_have_is_refused(repository: Path) -> None:
    write(repository, "m", plan([tensor("X", [1], "FP8")], [tensor("Y", [1], formula="X")]), ONE_GPU)
    assert "has the data type DataType.FP8" in failure(repository)
    write(repository, "m", plan([tensor("X", [1], packed=True)], [tensor("Y", [1], formula="X")]), ONE_GPU)
    assert "build the plan with linear formats" in failure(repository)


@pytest.mark.parametrize(
    ("most", "error"),
    [
        (0, "model 'm': input 'B' is optional, and TensorRT knows no inputs that are"),
        (8, "optional input 'B' is not supported for models that support batching"),
    ],
)
def test_an_input_that_a_request_may_leave_out_is_refused(repository: Path, most: int, error: str) -> None:
    dims = "[ -1, 2 ]" if most == 0 else "[ 2 ]"
    inputs = f'input {{ name: "A" dims: {dims} }} input {{ name: "B" dims: {dims} optional: true }}'
    write(repository, "m", ADD_SUB, f"{ONE_GPU}max_batch_size: {most} {inputs}")
    assert error in failure(repository)


def test_memory_that_is_not_there_is_an_error_of_the_load(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_GPU_BYTES", "1000")
    write(repository, "m", ADD_SUB, ONE_GPU)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in failure(repository)


def test_a_library_of_plugins_that_is_not_there_is_named(repository: Path) -> None:
    write(repository, "m", ADD_SUB, ONE_GPU)
    assert "backend config 'tensorrt,plugins': '/no/such.so' cannot be loaded" in failure(
        repository, plugins="/no/such.so"
    )


PLAN = f'backend: "tensorrt" {ONE_GPU}'
STALE = "10.3.0.26"


@pytest.mark.parametrize("beside", [True, False])
def test_a_plan_is_built_of_the_onnx_file_and_then_served(repository: Path, beside: bool) -> None:
    """ONNX Runtime for CPUs alone serves nothing meanwhile, since the model is for a GPU"""
    folder = write(repository, "m", tensorrt.written(ADD_SUB, STALE), f"{PLAN}max_batch_size: 8")
    if not beside:
        (folder / "model.plan").unlink()
    (folder / "model.onnx").write_bytes(buildable(ADD_SUB))
    with Engine(repository, options=LENIENT) as engine:
        eventually(lambda: engine.is_model_ready("m"), "the plan is built and served")
        check_add_sub(engine, "m", 3)
        assert engine.get_model_config("m")["backend"] == "tensorrt"
    (kept,) = (folder / "tensorrt").glob("*.plan")
    made = kept.stat()
    os.utime(kept, ns=(0, 0))
    with Engine(repository) as engine:
        check_add_sub(engine, "m", 3)
    assert kept.stat().st_ino == made.st_ino
    assert kept.stat().st_mtime_ns >= made.st_mtime_ns, "that it was used is written down"


def test_each_kind_of_gpu_has_a_plan_of_its_own_built(
    repository: Path,
    two_kinds: None,
) -> None:
    folder = write(repository, "m", b"", f"{PLAN.replace('0', '[0, 1]')}max_batch_size: 8")
    (folder / "model.plan").unlink()
    (folder / "model.onnx").write_bytes(buildable(ADD_SUB))
    with Engine(repository, options=LENIENT) as engine:
        eventually(lambda: engine.is_model_ready("m"), "both plans are built and served")
        check_add_sub(engine, "m", 3)
    names = sorted(path.name[: len("Stand-in-GPU-9-0")] for path in (folder / "tensorrt").glob("*.plan"))
    assert names == ["Stand-in-GPU-8-0", "Stand-in-GPU-9-0"]


def test_another_content_is_built_anew_in_the_cache_of_the_operator(repository: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    folder = write(repository, "m", b"", f"{PLAN}max_batch_size: 8")
    (folder / "model.plan").unlink()
    options = EngineOptions(exit_on_error=False, backend_config={"tensorrt": {"engine-cache-directory": str(cache)}})
    old = [cache / f"m/1/tensorrt/Stand-in-GPU-9-0-{number}.plan" for number in range(KEPT_PLANS)]
    old[0].parent.mkdir(parents=True)
    for path in old:
        path.touch()
        os.utime(path, (1, 1))
    for formula in ("A + B", "B + A"):
        made = {**ADD_SUB, "outputs": [{**ADD_SUB["outputs"][0], "formula": formula}, ADD_SUB["outputs"][1]]}
        (folder / "model.onnx").write_bytes(buildable(made))
        with Engine(repository, options=options) as engine:
            eventually(lambda: engine.is_model_ready("m"), "the plan is built and served")
    assert len(list((cache / "m/1/tensorrt").glob("*.plan"))) == KEPT_PLANS
    assert sum(path.exists() for path in old) == KEPT_PLANS - 2
    assert not (folder / "tensorrt").exists()


def test_a_build_that_fails_says_why_and_is_not_tried_again(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write(repository, "m", b"", f"{PLAN}max_batch_size: 8")
    (folder / "model.plan").unlink()
    (folder / "model.onnx").write_bytes(buildable({**ADD_SUB, "unbuildable": "no implementation for node Add"}))
    with Engine(repository, options=LENIENT) as engine:
        eventually(lambda: "no implementation for node Add" in caplog.text, "the reason is in the log")
        assert not engine.is_model_ready("m")
        assert "is built for Stand-in GPU" in str(engine.failures["m"])
    assert not list((folder / "tensorrt").glob("*.plan"))


def test_a_file_is_loaded_anew_where_a_kept_plan_is_broken(repository: Path) -> None:
    folder = write(repository, "m", b"", f"{PLAN}max_batch_size: 8")
    (folder / "model.plan").unlink()
    (folder / "model.onnx").write_bytes(buildable(ADD_SUB))
    with Engine(repository, options=LENIENT) as engine:
        eventually(lambda: engine.is_model_ready("m"), "the plan is built and served")
    (kept,) = (folder / "tensorrt").glob("*.plan")
    kept.write_bytes(kept.read_bytes()[:40])
    with Engine(repository, options=LENIENT) as engine:
        eventually(lambda: engine.is_model_ready("m"), "it is built again and served")
        check_add_sub(engine, "m", 3)
    assert not [path.name for path in (folder / "tensorrt").iterdir() if path.suffix == ".part"]


def test_a_kept_plan_that_another_server_removes_just_then_is_built_again(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(repository, "m", b"", f"{PLAN}max_batch_size: 8")
    (folder / "model.plan").unlink()
    (folder / "model.onnx").write_bytes(buildable(ADD_SUB))
    with Engine(repository, options=LENIENT) as engine:
        eventually(lambda: engine.is_model_ready("m"), "the plan is built and served")
    removed: list[Path] = []

    def remove(path: Path) -> None:
        if not removed:
            path.unlink()
            removed.append(path)

    monkeypatch.setattr("runners.backends.tensorrt.opened.mark_used", remove)
    with Engine(repository, options=LENIENT) as engine:
        eventually(lambda: engine.is_model_ready("m"), "it is built again and served")
        check_add_sub(engine, "m", 3)
    assert removed[0].exists()


@pytest.mark.parametrize("stale", [True, False])
def test_in_processes_of_its_own_no_plan_is_built_and_the_error_says_what_to_do(repository: Path, stale: bool) -> None:
    isolated = 'parameters { key: "kushi.isolate" value { string_value: "true" } }'
    folder = write(repository, "m", tensorrt.written(ADD_SUB, STALE), f"{PLAN}max_batch_size: 8 {isolated}")
    if not stale:
        (folder / "model.plan").unlink()
    (folder / "model.onnx").write_bytes(buildable(ADD_SUB))
    text = failure(repository)
    assert ("was written by TensorRT" if stale else "there is no plan") in text
    assert "In processes of its own no plan is built: load the model once without 'kushi.isolate', or build" in text
    assert "ONNX Runtime serves meanwhile" not in text
    assert not list((folder / "tensorrt").glob("*.plan"))
    (folder.parent / "config.pbtxt").write_text(f"{PLAN}max_batch_size: 8")
    with Engine(repository, options=LENIENT) as engine:
        eventually(lambda: engine.is_model_ready("m"), "the plan is built and served")
    (folder.parent / "config.pbtxt").write_text(f"{PLAN}max_batch_size: 8 {isolated}")
    with Engine(repository) as engine:
        check_add_sub(engine, "m", 3)


VALUED = plan(
    [tensor("X", [1]), tensor("S", [2], "INT32", on_host=True)],
    [tensor("Y", [-1, -1], formula="np.broadcast_to(X, tuple(S))")],
)


def test_a_plan_is_built_for_the_values_of_shape_tensors_that_the_configuration_says(repository: Path) -> None:
    said = " ".join(
        f'parameters {{ key: "kushi.{what}_shapes" value {{ string_value: "S:{values}" }} }}'
        for what, values in (("min", "1x1"), ("opt", "2x2"), ("max", "4x3"))
    )
    folder = write(repository, "m", b"", f"{PLAN}{said}")
    (folder / "model.plan").unlink()
    (folder / "model.onnx").write_bytes(buildable(VALUED))
    with Engine(repository, options=LENIENT) as engine:
        eventually(lambda: engine.is_model_ready("m"), "the plan is built and served")
        given = {"X": np.ones(1, np.float32), "S": np.array([4, 3], np.int32)}
        assert np.asarray(engine.infer("m", given)["Y"]).shape == (4, 3)
        with pytest.raises(InvalidInput, match="the values of dimension 1 to be between 1 and 3 but received 4"):
            engine.infer("m", {**given, "S": np.array([4, 4], np.int32)})


def test_a_plan_is_not_built_where_values_of_shape_tensors_are_not_known(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(repository, "m", b"", PLAN)
    (folder / "model.plan").unlink()
    (folder / "model.onnx").write_bytes(buildable(VALUED))
    with Engine(repository, options=LENIENT):
        eventually(lambda: "is a shape tensor, and nothing says which values" in caplog.text, "the log says so")
