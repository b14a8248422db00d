"""Exports one model: opened, written beside the repository, compared with the original, then moved in"""

import logging
from collections.abc import Sequence
from typing import Any

import torch

from . import Exported, Tolerance
from .comparison import compare
from .configuration import check_batching, configuration
from .onnx_file import write
from .original import Stated, opened
from .place import Place, stage
from .tensors import Input

__all__ = ["export"]

_LOG = logging.getLogger(__name__)


def export(
    source: Any,  # noqa: ANN401 - a module of any of PyTorch's kinds, or a path
    place: Place,
    *,
    inputs: Sequence[Input | torch.Tensor],
    input_names: Sequence[str],
    output_names: Sequence[str],
    max_batch_size: int,
    opset: int,
    tolerance: Tolerance,
) -> Exported:
    """As `export` of the package says"""
    stated = Stated(inputs, input_names, output_names, max_batch_size)
    _LOG.info("opening the model")
    with opened(source, stated) as original, stage(place) as staged:
        _LOG.info("writing ONNX, opset %d, with PyTorch %s", opset, torch.__version__)
        tensors = write(original, staged.files / "model.onnx", opset, batching=stated.batching)
        if stated.batching:
            check_batching([tensor for listed in tensors for tensor in listed])
        if not staged.config.exists():
            text = configuration(place.directory.name, max_batch_size, *tensors)
            staged.config.write_text(text, encoding="utf-8")
        _LOG.info("comparing with the original")
        most, rows, differences = compare(original, staged, place, tolerance)
    return Exported(place.files / "model.onnx", place.version, most, rows, differences)
