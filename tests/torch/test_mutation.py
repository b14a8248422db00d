"""Which models write to what they are given, and which to themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from runners.backends.torch import exported, script
from tests.torch.models import Network, export, network_arguments, save_exported, save_script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CPU = torch.device("cpu")


class Pure(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = x + 1
        z.mul_(2)
        first, second = torch.chunk(z, 2)
        return first.relu_(), second.view(-1)


class ThroughView(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        y.view(-1)[:2].add_(1)
        return x + y


class ThroughChunk(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        first, _ = torch.chunk(x.t(), 2)
        first.zero_()
        return x + y


class WithState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 4))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.total.add_(x)
        return self.total + y


class Inner(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            x.mul_(3)
        return x + y


class ThroughList(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        kept = [x]
        kept.append(y)
        kept[1].add_(1)
        return x + y


class ThroughLoop(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z = x
        for _ in range(int(y.sum())):
            z = z if bool(y.any()) else z + 1
        z.add_(1)
        return z + y


class Recurrent(nn.Module):
    """Chunks and activations in place, beside weights: nothing of it is anybody else's"""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(inplace=True)
        # what is to be trained may not be changed in place, chunk by chunk
        self.requires_grad_(requires_grad=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        left, right = torch.chunk(self.gates(self.norm(x)), 2, 1)
        states = [left.sigmoid_(), right.tanh_()]
        states.append(self.dropout(y + 1))
        return states[0] * states[1] + states[2]


CASES: list[tuple[Callable[[], nn.Module], set[int], bool]] = [
    (Pure, set(), False),
    (ThroughView, {1}, False),
    (ThroughChunk, {0}, False),
    (WithState, set(), True),
    (Inner, {0}, False),
    (Recurrent, set(), False),
]
ONLY_IN_SCRIPTS: list[tuple[Callable[[], nn.Module], set[int], bool]] = [
    (ThroughList, {0, 1}, False),
    (ThroughLoop, {0}, False),
]


@pytest.mark.parametrize(("make", "writes", "stateful"), CASES)
@pytest.mark.parametrize("decomposed", [False, True])
def test_what_an_exported_program_writes_to_is_known(
    tmp_path: Path, make: Callable[[], nn.Module], writes: set[int], stateful: bool, decomposed: bool
) -> None:
    program = export(make(), (torch.ones(2, 4), torch.ones(2, 4)), ({}, {}))
    save_exported(program.run_decompositions() if decomposed else program, tmp_path / "model.pt2")
    loaded = exported.load(tmp_path / "model.pt2", CPU)
    assert (set(loaded.writes), loaded.stateful) == (writes, stateful)


@pytest.mark.parametrize(("make", "writes", "stateful"), [*CASES, *ONLY_IN_SCRIPTS])
def test_what_torchscript_writes_to_is_known(
    tmp_path: Path, make: Callable[[], nn.Module], writes: set[int], stateful: bool
) -> None:
    save_script(make(), tmp_path / "model.pt")
    loaded = script.load(tmp_path / "model.pt", CPU)
    assert (set(loaded.writes), loaded.stateful) == (writes, stateful)


@pytest.mark.parametrize("kind", ["script", "exported"])
def test_a_usual_network_writes_to_nothing(tmp_path: Path, kind: str) -> None:
    loaded: Any
    if kind == "script":
        save_script(Network(), tmp_path / "model")
        loaded = script.load(tmp_path / "model", CPU)
    else:
        save_exported(export(Network(), network_arguments(2)), tmp_path / "model.pt2")
        loaded = exported.load(tmp_path / "model.pt2", CPU)
    assert (loaded.writes, loaded.stateful) == (set(), False)
