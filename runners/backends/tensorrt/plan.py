"""What a plan says of its tensors and profiles, as values: every decision about a run is made of these"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

__all__ = ["ITEM_BYTES", "Plan", "PlanTensor", "Range", "Shape"]

Shape = tuple[int, ...]
"""-1 is a dimension of any size"""

ITEM_BYTES = {
    "BOOL": 1,
    "INT8": 1,
    "UINT8": 1,
    "FP16": 2,
    "BF16": 2,
    "INT32": 4,
    "FP32": 4,
    "INT64": 8,
}
"""The data types of tensors of TensorRT that the protocol has too, by its names"""


@dataclass(frozen=True)
class Range:
    """What one profile allows of one input: dimensions, or the values of a shape tensor"""

    least: Shape
    best: Shape
    most: Shape


@dataclass(frozen=True)
class PlanTensor:
    """One input or output"""

    name: str
    is_input: bool
    datatype: str
    shape: Shape
    on_host: bool = False
    """TensorRT reads or writes it in the memory of the host: a shape tensor"""
    ranges: tuple[Range, ...] = ()
    """Of an input, its dimensions in each profile"""
    values: tuple[Range, ...] = ()
    """Of an input whose values are shapes, these in each profile"""

    def bytes_of(self, shape: Sequence[int]) -> int:
        """How much memory it takes in this shape"""
        return prod(shape) * ITEM_BYTES[self.datatype]


@dataclass(frozen=True)
class Plan:
    """The tensors of an engine, in its order"""

    tensors: tuple[PlanTensor, ...]
    profiles: int

    @property
    def inputs(self) -> tuple[PlanTensor, ...]:
        """Those that a request gives"""
        return tuple(tensor for tensor in self.tensors if tensor.is_input)

    @property
    def outputs(self) -> tuple[PlanTensor, ...]:
        """Those that it gets"""
        return tuple(tensor for tensor in self.tensors if not tensor.is_input)

    def tensor(self, name: str) -> PlanTensor:
        """The one of this name"""
        return next(tensor for tensor in self.tensors if tensor.name == name)
