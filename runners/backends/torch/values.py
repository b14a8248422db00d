"""What the core gives and takes, as PyTorch has it: arrays of NumPy are tensors on the host, and lists hold strings"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..python_engine import ModelFailed

if TYPE_CHECKING:
    from .names import Place

__all__ = ["MismatchError", "array_of", "pick", "value_of"]


class MismatchError(ModelFailed):
    """The model gives other results than its configuration says"""


def value_of(array: Any, datatype: str) -> Any:  # noqa: ANN401 - an array of NumPy's; a tensor or strings
    """The same memory as a tensor, where it has the type"""
    if datatype == "BYTES":
        return array.tolist()
    if datatype != "BF16":
        return torch.from_dlpack(array)
    if array.dtype.name == "float32":
        # the same value in the upper half
        halves = torch.from_dlpack(array).view(torch.int32) >> 16
        return halves.to(torch.int16).view(torch.bfloat16)
    return torch.from_dlpack(array.view("uint16")).view(torch.bfloat16)


def pick(results: Sequence[Any] | Mapping[str, Any], place: Place, name: str) -> Any:  # noqa: ANN401 - as above
    """The result that is the output `name`: a tensor or strings, wherever it lies"""
    result = _at(results, place, name)
    if not isinstance(result, (list, torch.Tensor)):
        raise MismatchError(f"output '{name}' is of type {type(result).__name__}, expected Tensor or List[str]")
    return result


def _at(results: Sequence[Any] | Mapping[str, Any], place: Place, name: str) -> Any:  # noqa: ANN401 - as above
    if isinstance(results, Mapping):
        if place in results:
            return results[str(place)]
        known = ", ".join(f"'{key}'" for key in results)
        raise MismatchError(f"the model has no output '{name}', it has {known}")
    if isinstance(place, str) or place >= len(results):
        raise MismatchError(
            f"The output {name} in the model configuration refers to an output index which doesn't exist. This model "
            f"has {len(results)} outputs"
        )
    return results[place]


def array_of(value: Any) -> Any:  # noqa: ANN401 - a tensor on the host or strings; an array
    """An array that shows the tensor's memory, where NumPy has its type"""
    if isinstance(value, list):
        return np.asarray(value, dtype=object)
    # NumPy has no bfloat16
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy(force=True)
