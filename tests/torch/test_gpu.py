"""The same models on a GPU: as on the CPU, weights once for each device, faults of its memory."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Final

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runners import Engine, EngineOptions, ModelOptions
from runners.errors import EngineFailed, KushiError
from tests.torch.models import (
    NETWORK_INPUTS,
    NETWORK_OUTPUTS,
    Network,
    export,
    model_config,
    network_arguments,
    parameter,
    put,
)
from tests.torch.test_running import Halves
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu

GROUP: Final = "instance_group {{ count: {} kind: KIND_GPU gpus: 0 }}"
ONE: Final = [("x", "FP32", [1])], [("OUTPUT__0", "FP32", [1])]
GRAPHS: Final = parameter("kushi.cuda_graphs", "1,4")
MIB: Final = 2**20


class Taking(nn.Module):
    """Takes as many GiB as it is told, beside weights of 256 MiB."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, 1024, 1024))

    def forward(self, x: Tensor) -> Tensor:
        taken = torch.ones([int(x.max()) * 1024, 1024, 256], device=x.device)
        return x + self.weight[0, 0, 0] + 0 * taken.sum()


class Large(nn.Module):
    """Has weights of 256 MiB."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, 1024, 1024))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight[0, 0, 0]


@pytest.mark.parametrize("kind", ["script", "exported"])
@pytest.mark.parametrize(
    "extra",
    [
        "",
        parameter("DISABLE_CUDNN", "true"),
        parameter("ENABLE_CACHE_CLEANING", "true"),
        parameter("kushi.isolate", "true"),
        parameter("kushi.isolate", "true") + GRAPHS,
    ],
)
def test_a_gpu_gives_the_same_as_the_cpu(repository: Path, kind: str, extra: str) -> None:
    network = Network().eval()
    made = network if kind == "script" else export(network, network_arguments(2))
    group = GROUP.format(2)
    text = model_config("m", NETWORK_INPUTS, NETWORK_OUTPUTS, max_batch_size=8, extra=f"{extra} {group}")
    put(repository, "m", made, text)
    image, scale = network_arguments(4)
    with torch.inference_mode():
        expected, _ = network(image, scale)
    with Engine(repository) as engine:
        assert not engine.failures
        wrong: list[float] = []

        def ask() -> None:
            for _ in range(20):
                got = engine.infer("m", image.numpy(), scale.numpy())["OUTPUT__0"]
                wrong.extend([d for d in [float(np.abs(got - expected.numpy()).max())] if d > 1e-3])

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_weights_are_once_on_a_gpu_and_want_of_its_memory_fails_one_request(repository: Path) -> None:
    put(repository, "m", Taking(), model_config("m", *ONE, max_batch_size=1, extra=GROUP.format(3)))
    before = torch.cuda.memory_allocated(0)
    with Engine(repository) as engine:
        assert not engine.failures
        held = (torch.cuda.memory_allocated(0) - before) / 2**20
        assert 256 <= held < 300
        for _ in range(2):
            with pytest.raises(EngineFailed, match=r"PyTorch execute failure: [\s\S]*CUDA out of memory"):
                engine.infer("m", np.full((1, 1), 100_000, np.float32))
            assert engine.infer("m", np.ones((1, 1), np.float32))["OUTPUT__0"][0, 0] == 2
        assert torch.cuda.memory_reserved(0) - before < 8 * 2**30


@pytest.mark.parametrize(
    "precision",
    [
        ("FP32", torch.float32, np.float32),
        ("FP16", torch.float16, np.float16),
        ("BF16", torch.bfloat16, ml_dtypes.bfloat16),
    ],
)
@pytest.mark.parametrize("extra", ["", GRAPHS])
@pytest.mark.parametrize("kind", ["script", "exported"])
def test_every_precision_gives_the_same_as_on_the_cpu(
    repository: Path, kind: str, extra: str, precision: tuple[str, torch.dtype, type[np.generic]]
) -> None:
    datatype, dtype, array = precision
    module = Halves(dtype).eval()
    sample = torch.linspace(-1, 1, 64, dtype=dtype).reshape(4, 16)
    tensors = [("x", datatype, [16])], [("OUTPUT__0", datatype, [4])]
    made = module if kind == "script" else export(module, (sample,))
    for name, group in (("cpu", "instance_group { kind: KIND_CPU }"), ("gpu", f"{GROUP.format(1)} {extra}")):
        put(repository, name, made, model_config(name, *tensors, max_batch_size=8, extra=group))
    with Engine(repository) as engine:
        assert not engine.failures
        given = sample.float().numpy().astype(array)
        for rows in (1, 3, 4):
            expected, got = (engine.infer(name, given[:rows])["OUTPUT__0"] for name in ("cpu", "gpu"))
            assert got.dtype == array
            np.testing.assert_allclose(got.astype(np.float32), expected.astype(np.float32), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", ["script", "exported"])
@pytest.mark.parametrize("extra", ["", GRAPHS, parameter("kushi.compile", "default")])
def test_an_unload_gives_memory_back(repository: Path, kind: str, extra: str) -> None:
    if kind == "script" and "compile" in extra:
        pytest.skip("TorchScript is not compiled")
    made = Large() if kind == "script" else export(Large(), (torch.zeros(2, 1),))
    put(repository, "m", made, model_config("m", *ONE, max_batch_size=4, extra=f"{extra} {GROUP.format(2)}"))
    gc.collect()
    before = torch.cuda.memory_allocated(0)
    with Engine(repository, options=EngineOptions(models=ModelOptions(control="explicit"))) as engine:
        for _ in range(3):
            engine.load_model("m")
            assert engine.infer("m", np.ones((1, 1), np.float32))["OUTPUT__0"][0, 0] == 2
            assert torch.cuda.memory_allocated(0) - before >= 256 * MIB
            engine.unload_model("m")
            eventually(lambda: torch.cuda.memory_allocated(0) - before < 32 * MIB, "the memory given back")
            eventually(lambda: torch.cuda.memory_reserved(0) - before < 256 * MIB, "the memory back in the system")


def test_tensors_of_pytorch_are_inputs(repository: Path) -> None:
    module = Halves(torch.float32).eval()
    put(
        repository,
        "m",
        module,
        model_config("m", [("x", "FP32", [16])], [("OUTPUT__0", "FP32", [4])], max_batch_size=4, extra=GROUP.format(1)),
    )
    x = torch.randn(3, 16)
    with Engine(repository) as engine, torch.inference_mode():
        np.testing.assert_allclose(engine.infer("m", x)["OUTPUT__0"], module(x).numpy(), rtol=0, atol=1e-2)
        with pytest.raises((KushiError, TypeError), match=r"(?i)cuda"):
            engine.infer("m", x.cuda())
