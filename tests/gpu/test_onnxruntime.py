"""ONNX models on a GPU: the same answers as on the CPU, the options of the providers, what they refuse.

They need ``kushi[gpu]`` in the place of ``kushi[cpu]``; for TensorRT also its libraries.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from onnx import TensorProto, helper

from runners import Engine, EngineOptions
from tests import models

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

pytestmark = [pytest.mark.gpu, pytest.mark.needs("onnxruntime-gpu")]

TENSORRT: Final = pytest.mark.needs("tensorrt-cu13-libs")

GROUP: Final = "instance_group {{ kind: KIND_GPU count: {} gpus: 0 }}\n"
CPU: Final = "instance_group { kind: KIND_CPU }"
ACCELERATOR: Final = "optimization {{ execution_accelerators {{ gpu_execution_accelerator {{ {} }} }} }}\n"
SIZE: Final = 64
TOLERANCE: Final = 0.1
"""Products of 64 numbers of about 1 are about 8; TF32 and half precision keep three digits of each"""


def product() -> onnx.ModelProto:
    """OUTPUT0 = INPUT0 times a matrix."""
    numbers = np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [SIZE, SIZE], numbers.tobytes(), raw=True)
    node = helper.make_node("MatMul", ["INPUT0", "weights"], ["OUTPUT0"])
    given, made = ([models.tensor(name, "FP32", ["batch", SIZE])] for name in ("INPUT0", "OUTPUT0"))
    return models.model([node], given, made, [weights])


def options(name: str, **parameters: str) -> str:
    stated = " ".join(f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items())
    return ACCELERATOR.format(f'name: "{name}" {stated}')


def tensorrt(**parameters: str) -> str:
    """With the shapes of a batch of at most 4, so that the engine is built when the model loads."""
    rows = {"min": 1, "opt": 2, "max": 4}
    shapes = {f"trt_profile_{kind}_shapes": f"INPUT0:{count}x{SIZE}" for kind, count in rows.items()}
    return options("tensorrt", **shapes, **parameters)


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def check_same(engine: Engine, name: str) -> None:
    for rows in (1, 3):
        value = np.random.default_rng(rows).standard_normal((rows, SIZE), dtype=np.float32)
        expected, found = (engine.infer(model, value)["OUTPUT0"] for model in ("cpu", name))
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "text",
    [
        "",
        options("cuda", gpu_mem_limit="1073741824", use_tf32="0", cudnn_conv_algo_search="HEURISTIC"),
        options("cuda", use_ep_level_unified_stream="on", cudnn_conv_use_max_workspace="False", prefer_nhwc="1"),
        parameter("arena_extend_strategy", "1") + parameter("do_copy_in_default_stream", "0"),
        parameter("memory.enable_memory_arena_shrinkage", "cpu:0;gpu:0"),
        parameter("session.use_device_allocator_for_initializers", "1"),
    ],
)
def test_cuda_gives_the_same_as_the_cpu(tmp_path: Path, text: str, count: int) -> None:
    models.write(tmp_path, "cpu", product(), CPU)
    only = parameter("session.disable_cpu_ep_fallback", "1")
    models.write(tmp_path, "gpu", product(), GROUP.format(count) + only + text)
    with Engine(tmp_path) as engine:
        assert not engine.failures
        check_same(engine, "gpu")


@pytest.mark.parametrize(
    ("text", "provider"),
    [
        ("", "CUDAExecutionProvider"),
        pytest.param(options("tensorrt"), "TensorrtExecutionProvider", marks=TENSORRT),
    ],
)
def test_a_model_that_does_not_say_where_computes_on_the_gpu(tmp_path: Path, text: str, provider: str) -> None:
    repository, profiles = tmp_path / "models", tmp_path / "profiles"
    profiles.mkdir()
    models.write(repository, "cpu", product(), CPU)
    models.write(repository, "m", product(), parameter("kushi.profile", "1") + text)
    settings = EngineOptions(backend_config={"onnxruntime": {"profile-directory": str(profiles)}})
    with Engine(repository, options=settings) as engine:
        assert not engine.failures
        groups = engine.get_model_config("m")["instance_group"]
        assert {group["kind"] for group in groups} == {"KIND_GPU"}
        check_same(engine, "m")
    events = [event.get("args", {}) for path in profiles.iterdir() for event in json.loads(path.read_text())]
    assert {arguments["provider"] for arguments in events if "op_name" in arguments} == {provider}


def convolution() -> onnx.ModelProto:
    """Two convolutions, one behind the other."""
    numbers = np.random.default_rng(0).standard_normal((2, 4, 4, 3, 3), dtype=np.float32)
    weights = [
        helper.make_tensor(f"W{index}", TensorProto.FLOAT, each.shape, each.tobytes(), raw=True)
        for index, each in enumerate(numbers)
    ]
    nodes = [
        helper.make_node("Conv", ["INPUT0", "W0"], ["between"], pads=[1] * 4),
        helper.make_node("Conv", ["between", "W1"], ["OUTPUT0"], pads=[1] * 4),
    ]
    given, made = ([models.tensor(name, "FP32", ["batch", 4, 16, 16])] for name in ("INPUT0", "OUTPUT0"))
    return models.model(nodes, given, made, weights)


@pytest.mark.parametrize(
    ("stated", "sizes"),
    [("", {"1", "2", "4", "8"}), (parameter("kushi.batch_sizes", "2,3"), {"2", "3", "8"})],
)
def test_convolutions_of_batches_of_every_size_give_the_same_as_the_cpu(
    tmp_path: Path, stated: str, sizes: set[str]
) -> None:
    repository, profiles = tmp_path / "models", tmp_path / "profiles"
    profiles.mkdir()
    batched = "\nmax_batch_size: 8\ndynamic_batching { }\n"
    models.write(repository, "cpu", convolution(), CPU + batched)
    text = GROUP.format(1) + batched + stated + parameter("kushi.profile", "1")
    models.write(repository, "gpu", convolution(), text)
    settings = EngineOptions(backend_config={"onnxruntime": {"profile-directory": str(profiles)}})
    with Engine(repository, options=settings) as engine:
        assert not engine.failures
        for rows in (1, 2, 3, 5, 8, 4, 1):
            value = np.random.default_rng(rows).standard_normal((rows, 4, 16, 16), dtype=np.float32)
            expected, found = (engine.infer(model, value)["OUTPUT0"] for model in ("cpu", "gpu"))
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    assert {path.name.split("_")[3] for path in profiles.iterdir()} == sizes


def test_instances_on_the_cpu_and_on_a_gpu_serve_one_model(tmp_path: Path) -> None:
    models.write(tmp_path, "cpu", product(), CPU)
    models.write(tmp_path, "both", product(), f"{CPU}\n{GROUP.format(1)}")
    with Engine(tmp_path) as engine:
        assert not engine.failures
        for _ in range(20):
            check_same(engine, "both")


@TENSORRT
@pytest.mark.parametrize("place", ["", "cache"])
@pytest.mark.parametrize("mode", ["FP32", "FP16", "BF16"])
def test_tensorrt_gives_the_same_as_the_cpu_and_keeps_its_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, place: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    repository = tmp_path / "models"
    models.write(repository, "cpu", product(), CPU)
    stated = {"trt_engine_cache_path": place} if place else {}
    text = tensorrt(precision_mode=mode, trt_engine_cache_enable="1", trt_timing_cache_enable="1", **stated)
    folder = models.write(repository, "trt", product(), GROUP.format(1) + text)
    with Engine(repository) as engine:
        assert not engine.failures
        check_same(engine, "trt")
    assert list((folder / "1" / place).glob("*.engine"))
    assert list((folder / "1" / place).glob("*.timing"))
    assert not list(elsewhere.iterdir())


@TENSORRT
@pytest.mark.parametrize("embedded", ["0", "1"])
def test_what_tensorrt_has_compiled_is_served_as_a_model(tmp_path: Path, embedded: str) -> None:
    repository = tmp_path / "models"
    models.write(repository, "cpu", product(), CPU)
    dumped = {"trt_dump_ep_context_model": "1", "trt_ep_context_embed_mode": embedded, "trt_engine_cache_enable": "1"}
    folder = models.write(repository, "m", product(), GROUP.format(1) + tensorrt(**dumped))
    with Engine(repository) as engine:
        assert not engine.failures
    (folder / "1" / "model_ctx.onnx").replace(folder / "1" / "model.onnx")
    (folder / "config.pbtxt").write_text(GROUP.format(1) + options("tensorrt"))
    with Engine(repository) as engine:
        assert not engine.failures
        check_same(engine, "m")


def test_a_gpu_that_is_not_there_is_named(tmp_path: Path) -> None:
    models.write(tmp_path, "m", product(), "instance_group { kind: KIND_GPU gpus: 99 }")
    with Engine(tmp_path, options=EngineOptions(exit_on_error=False)) as engine:
        assert "specifies invalid or unsupported gpu id 99" in str(engine.failures["m"])
