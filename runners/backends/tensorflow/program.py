"""A function of TensorFlow with names for what it takes and gives, whichever file it came from"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...repository.tensors import TensorInfo
from .datatypes import name_of

__all__ = ["Program", "described"]


@dataclass(frozen=True)
class Program:
    """What a batch goes through"""

    call: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """Tensors by their names, to tensors by theirs"""
    inputs: Sequence[TensorInfo]
    outputs: Sequence[TensorInfo]
    types: Mapping[str, Any]
    """TensorFlow's, of the inputs"""


def described(name: str, spec: Any) -> TensorInfo:  # noqa: ANN401 - anything of TensorFlow's with a type and a shape
    """A tensor as TensorFlow declares it"""
    datatype = name_of(spec.dtype, name)
    if spec.shape.rank is None:
        return TensorInfo(name, datatype, (), any_rank=True)
    return TensorInfo(name, datatype, tuple(-1 if size is None else size for size in spec.shape.as_list()))
