"""Where PyTorch models compute: on devices of their own choice, and on cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runners import Engine
from runners.errors import ModelUnavailable
from tests.cores import CORES, processes_on, threads_on
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
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer

WIDE: Final = [("x", "FP32", [512, 512])], [("OUTPUT__0", "FP32", [512, 512])]
TWO: Final = "instance_group { kind: KIND_CPU count: 2 }"
WARM_UP: Final = """model_warmup { name: "w" batch_size: 1
    inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 512, 512 ] zero_data: true } } }
"""
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


class Wide(nn.Module):
    """Enough work for several threads."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) * 2


class OnBoth(nn.Module):
    """Weights on a GPU and on the host: the program itself takes its values to and fro."""

    def __init__(self) -> None:
        super().__init__()
        self.here = nn.Parameter(torch.full([1], 2.0))
        self.there = nn.Parameter(torch.full([1], 3.0, device="cuda"))

    def forward(self, x: Tensor) -> Tensor:
        return ((x * self.here).to("cuda") * self.there).to("cpu") + x


class Elsewhere(nn.Module):
    """Makes a tensor on a device that every machine has, and that is not the CPU."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, torch.ones(4, device="meta")


class Halved(nn.Module):
    """On a GPU, with a tensor that it makes there as it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full([4], 0.5, device="cuda"))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + torch.ones(4, device=x.device)


@pytest.mark.parametrize("kind", ["script", "exported"])
@pytest.mark.parametrize("extra", ["", parameter("kushi.isolate", "true")], ids=["in the server", "in processes"])
def test_a_model_that_chooses_its_devices_answers_as_one_that_is_placed(
    repository: Path, kind: str, extra: str
) -> None:
    network = Network().eval()
    made = network if kind == "script" else export(network, network_arguments(2))
    for name, group in (("itself", "KIND_MODEL"), ("placed", "KIND_CPU")):
        text = f"instance_group {{ kind: {group} count: 2 }} {extra if name == 'itself' else ''}"
        put(repository, name, made, model_config(name, NETWORK_INPUTS, NETWORK_OUTPUTS, max_batch_size=8, extra=text))
    given = dict(zip(("image", "scale"), (one.numpy() for one in network_arguments(3)), strict=True))
    with Engine(repository) as engine:
        chosen, placed = (engine.infer(name, given) for name in ("itself", "placed"))
    for output in ("OUTPUT__0", "OUTPUT__1"):
        np.testing.assert_allclose(chosen[output], placed[output], rtol=1e-5)


def test_an_exported_program_that_was_saved_elsewhere_is_moved_to_the_cpu(repository: Path) -> None:
    outputs = [("OUTPUT__0", "FP32", [4]), ("OUTPUT__1", "FP32", [4])]
    text = model_config("m", [("x", "FP32", [4])], outputs, extra="instance_group { kind: KIND_CPU }")
    put(repository, "m", export(Elsewhere(), (torch.zeros(4),), ({},)), text)
    x = np.arange(4, dtype=np.float32)
    with Engine(repository) as engine:
        got = engine.infer("m", x)
    np.testing.assert_array_equal(got["OUTPUT__0"], x * 2)
    np.testing.assert_array_equal(got["OUTPUT__1"], np.ones(4))


def test_a_gpu_that_there_is_not_is_refused_with_what_is_missing(repository: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    text = model_config("m", *WIDE, extra="instance_group { kind: KIND_GPU }")
    put(repository, "m", Wide(), text)
    with pytest.raises(ModelUnavailable) as raised, Engine(repository):
        pass
    missing = "the driver of NVIDIA" if torch.version.cuda else f"PyTorch {torch.__version__} is made without CUDA"
    assert f"m_0 of model m has kind KIND_GPU but server does not support GPUs: {missing}" in str(raised.value)


@pytest.mark.clock
@two_cores
def test_intra_op_threads_are_on_the_cores_of_their_instance(repository: Path, start_server: StartServer) -> None:
    first, second = CORES[0], CORES[-1]
    cores = parameter("kushi.cores", f"{first};{second}") + parameter("INTRA_OP_THREAD_COUNT", "2")
    put(repository, "m", Wide(), model_config("m", *WIDE, extra=f"{TWO}\n{WARM_UP}\n{cores}"))
    server = start_server(repository)
    eventually(
        lambda: [threads_on(server.pid, core) for core in (first, second)] == [["m_0"] * 2, ["m_1"] * 2],
        "two threads of each instance on its core",
    )


@pytest.mark.clock
@two_cores
def test_each_process_of_an_isolated_model_is_on_its_cores(repository: Path, start_server: StartServer) -> None:
    first, second = CORES[0], CORES[-1]
    extra = TWO + parameter("kushi.cores", f"{first};{second}") + parameter("kushi.isolate", "true")
    put(repository, "m", Wide(), model_config("m", *WIDE, extra=extra))
    server = start_server(repository)
    assert [processes_on(server.pid, core) for core in (first, second)] == [1, 1]


@pytest.mark.gpu
def test_an_archive_keeps_the_devices_that_it_was_saved_with(repository: Path) -> None:
    text = model_config(
        "m", [("x", "FP32", [4])], [("OUTPUT__0", "FP32", [4])], extra="instance_group { kind: KIND_MODEL }"
    )
    put(repository, "m", OnBoth(), text)
    x = np.arange(4, dtype=np.float32)
    with Engine(repository) as engine:
        np.testing.assert_array_equal(engine.infer("m", x)["OUTPUT__0"], x * 7)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["script", "exported"])
@pytest.mark.parametrize("group", ["KIND_CPU", "KIND_GPU"])
def test_a_model_that_was_saved_on_a_gpu_computes_where_it_is_placed(repository: Path, kind: str, group: str) -> None:
    made = Halved() if kind == "script" else export(Halved(), (torch.zeros(4, device="cuda"),), ({},))
    text = f"instance_group {{ kind: {group} }}"
    put(repository, "m", made, model_config("m", [("x", "FP32", [4])], [("OUTPUT__0", "FP32", [4])], extra=text))
    x = np.arange(4, dtype=np.float32)
    with Engine(repository) as engine:
        np.testing.assert_array_equal(engine.infer("m", x)["OUTPUT__0"], x / 2 + 1)
