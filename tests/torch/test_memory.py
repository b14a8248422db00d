"""What stays in memory of a model that failed to load, while the failure is kept: nothing."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from runners import Engine, EngineOptions
from runners.backends.torch.program import Program
from tests.lifetimes import Made
from tests.torch.models import export, model_config, put

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", ["script", "exported"])
def test_a_failed_load_keeps_no_weights(repository: Path, kind: str) -> None:
    layer = nn.Linear(4, 4)
    tensors = [("input", "FP32", [4])], [("OUTPUT__0", "FP64", [4])]
    made = layer if kind == "script" else export(layer, (torch.zeros(2, 4),))
    put(repository, "m", made, model_config("m", *tensors, max_batch_size=8))
    programs = Made(Program)
    with Engine(repository, options=EngineOptions(exit_on_error=False)) as engine:
        assert "TYPE_FP64" in str(engine.failures["m"])
        gc.collect()
        assert not programs.alive()
