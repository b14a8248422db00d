"""ONNX models on a GPU: the same answers as on the CPU, the options of the providers, what they refuse.

They need ``kushi[gpu]`` in the place of ``kushi[cpu]``; for TensorRT also its libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from onnx import TensorProto, helper

from runners import Engine
from tests import models

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

pytestmark = pytest.mark.gpu

GROUP: Final = "instance_group {{ kind: KIND_GPU count: {} gpus: 0 }}\n"
ACCELERATOR: Final = "optimization {{ execution_accelerators {{ gpu_execution_accelerator {{ {} }} }} }}\n"
SIZE: Final = 64


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


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "text",
    [
        "",
        options("cuda", gpu_mem_limit="1073741824", use_tf32="0", cudnn_conv_algo_search="HEURISTIC"),
        parameter("arena_extend_strategy", "1") + parameter("do_copy_in_default_stream", "0"),
        parameter("memory.enable_memory_arena_shrinkage", "cpu:0;gpu:0"),
        parameter("session.use_device_allocator_for_initializers", "1"),
    ],
)
def test_cuda_gives_the_same_as_the_cpu(tmp_path: Path, text: str, count: int) -> None:
    models.write(tmp_path, "cpu", product(), "instance_group { kind: KIND_CPU }")
    only = parameter("session.disable_cpu_ep_fallback", "1")
    models.write(tmp_path, "gpu", product(), GROUP.format(count) + only + text)
    with Engine(tmp_path) as engine:
        assert not engine.failures
        for rows in (1, 3):
            value = np.random.default_rng(rows).standard_normal((rows, SIZE), dtype=np.float32)
            expected, found = (engine.infer(name, value)["OUTPUT0"] for name in ("cpu", "gpu"))
            np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)


def test_tensorrt_gives_the_same_as_the_cpu_and_keeps_its_engines(tmp_path: Path) -> None:
    models.write(tmp_path, "cpu", product(), "instance_group { kind: KIND_CPU }")
    cached = options(
        "tensorrt",
        trt_engine_cache_enable="1",
        trt_engine_cache_path="cache",
        trt_profile_min_shapes=f"INPUT0:1x{SIZE}",
        trt_profile_opt_shapes=f"INPUT0:2x{SIZE}",
        trt_profile_max_shapes=f"INPUT0:4x{SIZE}",
    )
    folder = models.write(tmp_path, "trt", product(), GROUP.format(1) + cached)
    with Engine(tmp_path) as engine:
        assert not engine.failures
        value = np.random.default_rng(1).standard_normal((3, SIZE), dtype=np.float32)
        expected, found = (engine.infer(name, value)["OUTPUT0"] for name in ("cpu", "trt"))
        np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)
    assert list((folder / "1" / "cache").glob("*.engine"))


def test_a_gpu_that_is_not_there_is_named(tmp_path: Path) -> None:
    models.write(tmp_path, "m", product(), "instance_group { kind: KIND_GPU gpus: 99 }")
    with Engine(tmp_path) as engine:
        assert "specifies invalid or unsupported gpu id 99" in str(engine.failures["m"])
