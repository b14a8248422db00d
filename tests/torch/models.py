"""Small PyTorch models, and repositories that hold them. Nothing is downloaded and nothing is committed."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from runners.backends.pinned import PinnedBudget
from runners.backends.pipeline import Loaded, load
from runners.repository.layout import scan
from runners.repository.resolve import resolve
from tests.models import Io, config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = [
    "BATCH",
    "NETWORK_INPUTS",
    "NETWORK_OUTPUTS",
    "VECTOR",
    "Network",
    "TwoIntoTwo",
    "budget",
    "export",
    "fp32",
    "loaded",
    "model_config",
    "parameter",
    "put",
    "save_exported",
    "save_script",
    "script",
]

BATCH: Final = torch.export.Dim("batch")
VECTOR: Final = [4]


class Network(nn.Module):
    """A convolutional network of the usual kind: (image, scale) → (scores, features)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.head = nn.Linear(32, 5)

    def forward(self, image: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(image) * scale
        return torch.softmax(self.head(features), 1), features


NETWORK_INPUTS: Final[Sequence[Io]] = [("image", "FP32", [3, 8, 8]), ("scale", "FP32", [1])]
NETWORK_OUTPUTS: Final[Sequence[Io]] = [("OUTPUT__0", "FP32", [5]), ("OUTPUT__1", "FP32", [32])]


def network_arguments(rows: int) -> tuple[Tensor, Tensor]:
    return torch.rand(rows, 3, 8, 8), torch.rand(rows, 1)


def script(module: nn.Module) -> Any:  # noqa: ANN401 - PyTorch has no public class for it
    """TorchScript of a module. PyTorch advises against it each time, which is no business of these tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return torch.jit.script(module.eval())


def save_script(module: nn.Module, path: Path) -> None:
    script(module).save(str(path))


def export(
    module: nn.Module, arguments: tuple[Any, ...], dynamic: object = None, **named: object
) -> torch.export.ExportedProgram:
    """An exported program whose tensors have any number of rows, unless other dimensions are to be dynamic."""
    shapes = dynamic if dynamic is not None else tuple({0: BATCH} for _ in arguments)
    return torch.export.export(module.eval(), arguments, named, dynamic_shapes=shapes)


def save_exported(program: torch.export.ExportedProgram, path: Path) -> None:
    torch.export.save(program, str(path))


def model_config(
    name: str,
    inputs: Sequence[Io],
    outputs: Sequence[Io],
    *,
    max_batch_size: int = 0,
    extra: str = "",
    fields: Mapping[str, str] | None = None,
) -> str:
    text = config(name, inputs, outputs, max_batch_size=max_batch_size, extra=extra, fields=fields)
    return text.replace("onnxruntime_onnx", "pytorch_libtorch")


def budget(most_bytes: int = 1 << 30) -> PinnedBudget:
    """More than any test needs, unless a test is about too little of it."""
    return PinnedBudget(most_bytes)


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def put(repository: Path, name: str, made: nn.Module | torch.export.ExportedProgram, text: str | None = None) -> Path:
    """A model's directory: a module as TorchScript, an exported program as it is."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    if isinstance(made, nn.Module):
        save_script(made, folder / "1" / "model.pt")
    else:
        save_exported(made, folder / "1" / "model.pt2")
    if text is not None:
        (folder / "config.pbtxt").write_text(text)
    return folder


class TwoIntoTwo(nn.Module):
    """(x, y) → (x + y, x − 2y): every mistake in the order shows"""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x + y, x - 2 * y


def fp32(*names: str) -> list[Io]:
    return [(name, "FP32", VECTOR) for name in names]


def loaded(repository: Path, *, auto_complete: bool = True) -> Loaded:
    """The one model of the repository, version 1"""
    (source,) = scan([repository]).models
    resolved = resolve(source, auto_complete=auto_complete)
    return load(source, resolved.config, 1, auto_complete=auto_complete)
