"""The networks that the GPU benchmark serves, and their repository. Nothing is downloaded; the weights never vary."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

__all__ = ["CONVNET", "SMALL", "Network", "Served", "made", "write"]

SEED = 7


@dataclass(frozen=True)
class Network:
    name: str
    dims: tuple[int, ...]
    """Of one row"""


CONVNET = Network("convnet", (3, 224, 224))
SMALL = Network("small", (3, 32, 32))


@dataclass(frozen=True)
class Served:
    """One directory of the repository"""

    name: str
    network: Network
    instances: int
    max_batch_size: int
    extra: str = ""


class Block(nn.Module):
    """Two convolutions, and a way around them"""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1)
        )
        self.around = nn.Conv2d(before, after, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.main(x) + self.around(x))


def made(network: Network) -> nn.Module:
    """convnet: a ResNet-18 of half the width; small: a few convolutions"""
    torch.manual_seed(SEED)
    if network == SMALL:
        layers: list[nn.Module] = []
        for before, after in pairwise((3, 32, 64, 128)):
            layers += [nn.Conv2d(before, after, 3, 2, 1), nn.ReLU()]
    else:
        layers = [nn.Conv2d(3, 32, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        for before, after in pairwise((32, 32, 64, 128, 256)):
            layers += [Block(before, after, 1 if before == after else 2), Block(after, after, 1)]
    last = 128 if network == SMALL else 256
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000)).eval()


def write(directory: Path, served: tuple[Served, ...], kind: str) -> Path:
    """Exported programs; `kind` is that of their instances"""
    shutil.rmtree(directory, ignore_errors=True)
    for entry in served:
        version = directory / entry.name / "1"
        version.mkdir(parents=True)
        sample = torch.zeros(2, *entry.network.dims)
        rows = ({0: torch.export.Dim("rows", max=entry.max_batch_size)},)
        torch.export.save(
            torch.export.export(made(entry.network), (sample,), dynamic_shapes=rows), version / "model.pt2"
        )
        text = (
            f"max_batch_size: {entry.max_batch_size}\n"
            f'input {{ name: "X" data_type: TYPE_FP32 dims: {[*entry.network.dims]} }}\n'
            'output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 1000 ] }\n'
            f"instance_group {{ kind: {kind} count: {entry.instances} }}\n{entry.extra}"
        )
        (version.parent / "config.pbtxt").write_text(text, encoding="utf-8")
    return directory
