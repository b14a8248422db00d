"""The same models on a GPU: as on the CPU, weights once for each device, faults of its memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runners import Engine
from runners.errors import EngineFailed
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

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu

GROUP: Final = "instance_group {{ count: {} kind: KIND_GPU gpus: 0 }}"
ONE: Final = [("x", "FP32", [1])], [("OUTPUT__0", "FP32", [1])]


class Taking(nn.Module):
    """Takes as many GiB as it is told, beside weights of 256 MiB."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, 1024, 1024))

    def forward(self, x: Tensor) -> Tensor:
        taken = torch.ones([int(x.max()) * 1024, 1024, 256], device=x.device)
        return x + self.weight[0, 0, 0] + 0 * taken.sum()


@pytest.mark.parametrize("kind", ["script", "exported"])
@pytest.mark.parametrize(
    "extra",
    [
        "",
        parameter("DISABLE_CUDNN", "true"),
        parameter("ENABLE_CACHE_CLEANING", "true"),
        parameter("kushi.isolate", "true"),
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
