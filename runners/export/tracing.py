"""Exported programs of modules, whose dimensions vary as asked"""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

import torch
from torch._dynamo.exc import UserError, UserErrorType  # what torch.export raises
from torch._export.converter import TS2EPConverter  # the only way from TorchScript to an exported program

from ..errors import Unsupported
from .samples import Samples

__all__ = ["quiet", "reason", "trace", "trace_script"]

_ROWS = 2


def trace(module: Any, samples: Samples, max_batch_size: int, subject: str) -> torch.export.ExportedProgram:  # noqa: ANN401 - a module
    """The program of `module`"""
    batch = torch.export.Dim("batch", min=1, max=max(max_batch_size, _ROWS))
    varying = samples.varying()
    shapes = tuple(
        {place: batch if place == 0 and max_batch_size else torch.export.Dim.DYNAMIC for place in places}
        for places in varying
    )
    try:
        with quiet():
            return torch.export.export(module, samples.draw(_ROWS), dynamic_shapes=shapes)
    except UserError as error:
        if error.error_type is not UserErrorType.CONSTRAINT_VIOLATION:
            raise Unsupported(f"{subject} cannot be exported: {reason(error)}") from error
        raise Unsupported(
            f"{subject} fixes a dimension that should vary: {reason(error)}: take sizes from the inputs, as in "
            "x.shape[0], instead of numbers; or state that dimension as a number, or no batches: --max-batch-size 0"
        ) from error
    except Exception as error:
        raise Unsupported(f"{subject} cannot be exported: {reason(error)}") from error


def trace_script(module: Any, samples: Samples, max_batch_size: int, subject: str) -> torch.export.ExportedProgram:  # noqa: ANN401 - a module
    """The program of TorchScript"""
    try:
        with quiet():
            converted = TS2EPConverter(module, samples.draw(_ROWS), {}).convert().module()
    except Exception as error:
        raise Unsupported(f"{subject} cannot be exported: {reason(error)}") from error
    return trace(converted, samples, max_batch_size, subject)


@contextmanager
def quiet() -> Iterator[None]:
    """PyTorch tells much of its own ways of exporting, which the user of a model cannot change; errors are raised"""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def reason(error: Exception) -> str:
    """What an error of PyTorch says is wrong: the first sentence of its first point, or else of its first line"""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    points = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    return (points or lines or [type(error).__name__])[0].partition(". ")[0].rstrip(".")
