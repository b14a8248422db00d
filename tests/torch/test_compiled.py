"""Exported programs that PyTorch compiles: at load and not while a request waits, with the answers of the program."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from runners import Engine, EngineOptions
from runners.backends.torch.compiler import is_of_compiler
from runners.backends.torch.engine import Plan
from runners.backends.torch.trial import SIZES, run_zeros
from runners.errors import ConfigInvalid, Unsupported
from runners.repository.config import parse
from tests.torch.models import export, loaded, model_config, parameter, put
from tests.torch.test_running import around

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


TENSORS: Final = [("input", "FP32", [16])], [("OUTPUT__0", "FP32", [16])]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer = nn.Linear(16, 16)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name of the tensor
        return torch.relu(self.layer(input)) * 2


class Sums(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).sum(1)


def no_compiler(*_: object) -> Callable[..., object]:
    """As PyTorch's own backend, where the machine has none."""
    raise RuntimeError("Failed to find C compiler")


def compile_with(monkeypatch: pytest.MonkeyPatch, backend: Callable[..., object]) -> None:
    """PyTorch follows the program as it does, and gives what it has found to this one."""
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))


@pytest.fixture
def compiled_for(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The shapes of inputs for which programs are compiled; they run as they are."""
    shapes: list[list[int]] = []

    def backend(graph: torch.fx.GraphModule, examples: Sequence[object]) -> Callable[..., object]:
        # a size that may be any is no number
        (given,) = (example for example in examples if isinstance(example, Tensor))
        shapes.append([size if isinstance(size, int) else -1 for size in given.shape])
        return graph.forward

    compile_with(monkeypatch, backend)
    return shapes


def write_sums(repository: Path, dims: list[int], *, least: int = 1, most: int = 1000) -> None:
    """A program that takes no batches, and so many columns."""
    varies = {0: torch.export.Dim("rows"), 1: torch.export.Dim("columns", min=least, max=most)}
    made = export(Sums(), (torch.zeros(2, max(4, least)),), (varies,))
    tensors = [("x", "FP32", dims)], [("OUTPUT__0", "FP32", dims[:1])]
    put(repository, "m", made, model_config("m", *tensors, extra=parameter("kushi.compile", "default")))


def write(repository: Path, extra: str, *, as_script: bool = False) -> Layer:
    layer = Layer().eval()
    made = layer if as_script else export(layer, (torch.zeros(2, 16),))
    put(repository, "m", made, model_config("m", *TENSORS, max_batch_size=8, extra=extra))
    return layer


@pytest.mark.timeout(600)
def test_a_compiled_program_gives_the_same_and_no_request_waits_for_the_compiler(repository: Path) -> None:
    layer = write(repository, parameter("kushi.compile", "default"))
    before = counters["stats"]["unique_graphs"]
    with Engine(repository) as engine:
        assert not engine.failures
        compiled = counters["stats"]["unique_graphs"]
        assert compiled > before
        for rows in (1, 2, 3, 5, 8):
            x = torch.randn(rows, 16)
            with torch.inference_mode():
                expected = layer(x)
            np.testing.assert_allclose(engine.infer("m", x)["OUTPUT__0"], expected.numpy(), rtol=0, atol=1e-5)
        assert counters["stats"]["unique_graphs"] == compiled


def test_a_program_that_cannot_be_compiled_fails_to_load(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_with(monkeypatch, no_compiler)
    write(repository, parameter("kushi.compile", "default"))
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        text = str(engine.failures["m"])
    assert "unable to load model 'm', it cannot be compiled for 1 rows of zeros: PyTorch execute failure" in text
    assert "Failed to find C compiler" in text


def test_a_program_without_batches_that_cannot_be_compiled_fails_to_load(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_with(monkeypatch, no_compiler)
    write_sums(repository, [-1, -1])
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        text = str(engine.failures["m"])
    assert "unable to load model 'm', it cannot be compiled for zeros: PyTorch execute failure" in text
    assert "Failed to find C compiler" in text


def test_a_program_that_refuses_32_columns_is_compiled_for_one(
    repository: Path, compiled_for: list[list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    write_sums(repository, [-1, -1], most=16)
    with Engine(repository) as engine:
        assert not engine.failures
        assert compiled_for[-1] == [1, 1]
        x = np.ones((3, 5), np.float32)
        assert engine.infer("m", x)["OUTPUT__0"].tolist() == [10] * 3
    assert "not compiled" not in caplog.text


def test_a_program_that_refuses_zeros_of_any_size_is_loaded_and_compiled_for_its_first_request(
    repository: Path, compiled_for: list[list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    write_sums(repository, [-1, -1], least=40)
    with Engine(repository) as engine:
        assert not engine.failures
        assert compiled_for == []
        x = np.ones((3, 50), np.float32)
        assert engine.infer("m", x)["OUTPUT__0"].tolist() == [100] * 3
    assert len(compiled_for) == 1
    assert "'m' is not compiled for zeros at load, so that the first request waits for the compiler: it" in caplog.text


@pytest.mark.parametrize(
    ("rows", "sizes", "ran"),
    [
        # three columns by 32 or by 1
        (None, SIZES, (3, 32)),
        (None, (1,), (3, 1)),
        (1, SIZES, (1, 3, 32)),
        (1, (1,), (1, 3, 1)),
        (2, SIZES, (2, 3, 1)),
        (40, SIZES, (33, 3, 1)),
        (20, SIZES, (20, 3, 1)),
    ],
)
def test_zeros_have_the_size_that_was_tried_and_no_more_elements_than_are_tried(
    rows: int | None, sizes: Sequence[int], ran: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.backends.torch.trial._MOST_ELEMENTS", 100)
    seen: list[tuple[int, ...]] = []

    def run(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        seen.append(tuple(arguments[0].shape))
        return arguments

    tensors = [("x", "FP32", [3, -1])], [("OUTPUT__0", "FP32", [3, -1])]
    batch = 0 if rows is None else 64
    config = parse(model_config("m", *tensors, max_batch_size=batch), "config.pbtxt")
    run_zeros(around(run), config, Plan((0,), ("FP32",), (0,), ("OUTPUT__0",)), rows, sizes)
    assert seen == [ran]


def test_zeros_that_are_too_many_at_any_size_are_not_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("runners.backends.torch.trial._MOST_ELEMENTS", 100)

    def run(_: Sequence[Tensor]) -> Sequence[Tensor]:
        raise AssertionError

    tensors = [("x", "FP32", [50])], [("OUTPUT__0", "FP32", [50])]
    config = parse(model_config("m", *tensors, max_batch_size=8), "config.pbtxt")
    run_zeros(around(run), config, Plan((0,), ("FP32",), (0,), ("OUTPUT__0",)), 8, SIZES)
    assert "its inputs have 150 elements, at most 100 are tried" in caplog.text


def test_what_the_model_raises_while_the_compiler_follows_it_is_no_error_of_the_compiler() -> None:
    compiled = torch.compile(lambda x: x @ x, backend="eager")
    with pytest.raises(RuntimeError) as raised:
        compiled(torch.zeros(2, 3))
    assert not is_of_compiler(raised.value)


def test_what_the_compiler_of_kernels_raises_is_an_error_of_the_compiler() -> None:
    module = ModuleType("triton.runtime.build")
    exec("def build(): raise RuntimeError('Failed to find C compiler')", vars(module))
    with pytest.raises(RuntimeError) as raised:
        module.build()
    assert is_of_compiler(raised.value)


def test_torchscript_is_refused(repository: Path) -> None:
    write(repository, parameter("kushi.compile", "default"), as_script=True)
    with pytest.raises(Unsupported, match="is about exported programs, and the model is TorchScript"):
        loaded(repository)


@pytest.mark.parametrize("extra", [("kushi.compile", "reduce-overhead"), ("kushi.cuda_graphs", "1,2")])
def test_cuda_graphs_are_refused_on_the_cpu(repository: Path, extra: tuple[str, str]) -> None:
    write(repository, f"{parameter(*extra)} instance_group {{ kind: KIND_CPU }}")
    with pytest.raises(ConfigInvalid, match=f"parameter '{extra[0]}' of model 'm' asks for CUDA graphs, and an inst"):
        loaded(repository)
