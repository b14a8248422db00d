"""
From a PyTorch model to an ONNX model in a repository: exported, held against the original, then put in its place.

    from kushi.export import export

    export(network, "model_repository/digits", inputs=[images], output_names=["logits"])

PyTorch and ONNX are imported when something is exported.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..backends.onnxruntime.library import runtime_library
from ..errors import InvalidInput, Unsupported
from ..tolerance import Difference, Tolerance
from .place import choose
from .tensors import Input

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

__all__ = ["Difference", "Exported", "Input", "Tolerance", "export"]

_PACKAGES = ("torch", "onnx", "onnxscript")


@dataclass(frozen=True)
class Exported:
    """What was written, and how it was found to answer"""

    path: Path
    """The ONNX file"""
    version: int
    max_batch_size: int
    batch_sizes: tuple[int, ...]
    """The numbers of rows that were compared; none for a model without batches"""
    differences: Mapping[str, Difference]
    """By the name of the output"""


def export(
    source: torch.nn.Module | torch.export.ExportedProgram | str | Path,
    directory: str | Path,
    *,
    inputs: Sequence[Input | torch.Tensor] = (),
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
    max_batch_size: int = 8,
    version: int | Literal["next"] = 1,
    force: bool = False,
    opset: int = 18,
    tolerance: Tolerance | None = None,
) -> Exported:
    """
    Writes `directory`/VERSION/model.onnx, and `directory`/config.pbtxt where there is none. What is written was loaded
    by an engine and answered as the original did; where something fails, nothing is written.

    source: a module, an exported program or TorchScript; or the path of a file that holds one of the last two.
    inputs: one for each argument of the model. Tensors are examples, with the batch dimension in front: rows of them
        are drawn for the comparison. An `Input` says name, data type and dimensions, and random numbers are made. An
        exported program has them itself.
    input_names: what the inputs are called (default: the names of the arguments).
    output_names: what the outputs are called (default: the keys of a dictionary, or OUTPUT__0, OUTPUT__1, …).
    max_batch_size: the most rows of a batch; 0 for a model whose inputs and outputs have no batch dimension.
    version: the version to write, or "next" for the one after the latest.
    force: whether a version that exists is replaced.
    """
    if max_batch_size < 0:
        raise InvalidInput(f"maximum batch size: expected 0 or more, got {max_batch_size}")
    place = choose(Path(directory), version, force=force)
    # its absence would show only after a long export
    runtime_library()
    missing = [package for package in _PACKAGES if find_spec(package) is None]
    if missing:
        raise Unsupported(f'export needs {" and ".join(missing)}, not found here: pip install "kushi[export]"')
    exporter = import_module(".exporter", __package__)
    written: Exported = exporter.export(
        source,
        place,
        inputs=inputs,
        input_names=input_names,
        output_names=output_names,
        max_batch_size=max_batch_size,
        opset=opset,
        tolerance=tolerance or Tolerance(),
    )
    return written
