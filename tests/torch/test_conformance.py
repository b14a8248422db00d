"""The suite that every engine passes, on TorchScript archives and exported programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import torch
from torch import Tensor, nn

from runners.backends.torch import exported, script
from runners.backends.torch.engine import Plan, TorchEngine
from runners.backends.torch.names import bind_inputs, bind_outputs
from runners.backends.torch.options import read_options
from runners.repository.config import parse
from tests import conformance
from tests.models import config
from tests.torch import models

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from runners.backends.torch.program import Program

CPU: Final = torch.device("cpu")


class Identity(nn.Module):
    def forward(self, given: Tensor) -> Tensor:
        return given


class HandThrough(nn.Module):
    def forward(self, given: Tensor) -> Tensor:
        return given


class SumAndDifference(nn.Module):
    def forward(self, A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:  # noqa: N803 - names of the suite
        return A + B, A - B


class OptionalAddend(nn.Module):
    def forward(self, A: Tensor, B: Tensor | None = None) -> Tensor:  # noqa: N803
        if B is None:
            return A + 10
        return A + B


class SmallNumbersOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(8))

    def forward(self, numbers: Tensor) -> Tensor:
        return torch.index_select(self.table, 0, numbers.flatten()).reshape(numbers.shape)


class NonZero(nn.Module):
    def forward(self, numbers: Tensor) -> Tensor:
        return torch.nonzero(numbers).t()


MODELS: Final[dict[str, type[nn.Module]]] = {
    model.__name__: model
    for model in (Identity, HandThrough, SumAndDifference, OptionalAddend, SmallNumbersOnly, NonZero)
}


class Subject:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def program(self, model: str, inputs: Sequence[conformance.Tensor]) -> Program:
        path = self.folder / f"{model}.pt"
        models.save_script(MODELS[model](), path)
        return script.load(path, CPU)

    def engine(
        self, model: str, inputs: Sequence[conformance.Tensor], outputs: Sequence[conformance.Tensor]
    ) -> TorchEngine:
        program = self.program(model, inputs)
        stated = parse(config("m", inputs, outputs, max_batch_size=0), "config.pbtxt")
        plan = Plan(
            input_places=bind_inputs(stated, program.signature),
            input_types=tuple(datatype for _, datatype, _ in inputs),
            output_places=bind_outputs(stated, program.signature),
            output_names=tuple(name for name, _, _ in outputs),
        )
        return TorchEngine(program, plan, CPU, read_options(stated), threads=1, concurrent=True, budget=models.budget())

    def takes(self, datatype: str) -> bool:
        # PyTorch has no tensors of strings, only lists of UTF-8
        return datatype != "BYTES"


class Exported(Subject):
    def program(self, model: str, inputs: Sequence[conformance.Tensor]) -> Program:
        path = self.folder / f"{model}.pt2"
        sample = tuple(torch.zeros([3 if dim < 0 else dim for dim in dims], dtype=torch.int64) for _, _, dims in inputs)
        sizes = tuple(
            {axis: torch.export.Dim.AUTO for axis, dim in enumerate(dims) if dim < 0} for _, _, dims in inputs
        )
        models.save_exported(models.export(MODELS[model](), sample, sizes), path)
        return exported.load(path, CPU)


@pytest.mark.parametrize("case", conformance.CASES)
def test_torchscript_conforms(tmp_path: Path, case: str) -> None:
    conformance.run(case, Subject(tmp_path))


@pytest.mark.parametrize(
    "case",
    [
        "only_wanted_outputs_come_back",
        "an_engine_error_fails_the_request_that_caused_it_and_no_other",
        "outputs_may_depend_on_the_data_in_size",
        "slots_run_side_by_side",
    ],
)
def test_an_exported_program_conforms(tmp_path: Path, case: str) -> None:
    conformance.run(case, Exported(tmp_path))
