"""The inputs of a model where its file does not say them, as in image:FP32:3,224,224"""

from dataclasses import dataclass
from typing import Self

from ..errors import InvalidInput
from ..integers import integer
from ..repository.messages import DataType
from ..repository.tensors import protocol_type

__all__ = ["Input"]

_ANY = -1
_FORM = "expected NAME:DATATYPE:DIMS, as in image:FP32:3,224,224"


@dataclass(frozen=True)
class Input:
    """Name, data type of the protocol and dimensions without that of the batch; -1 for one that varies"""

    name: str
    datatype: str
    dims: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        subject = f"input '{self.name}'"
        if self.datatype not in {protocol_type(number) for number in DataType.values()} - {"INVALID"}:
            raise InvalidInput(f"{subject}: '{self.datatype}' is no data type, expected one as FP32 or INT64")
        if self.datatype == "BYTES":
            raise InvalidInput(f"{subject}: PyTorch has no tensors of strings to export")
        if any(dim < 1 and dim != _ANY for dim in self.dims):
            raise InvalidInput(
                f"{subject}: dimensions are at least 1, or -1 for one that varies, got {list(self.dims)}"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """The input that `text` states"""
        name, *rest = text.split(":")
        if not name or len(rest) not in {1, 2}:
            raise InvalidInput(f"input '{text}': {_FORM}")
        stated = [integer(dim) for dim in rest[1].split(",")] if rest[1:] and rest[1] else []
        dims = tuple(dim for dim in stated if dim is not None)
        if len(dims) < len(stated):
            raise InvalidInput(f"input '{text}': {_FORM}")
        return cls(name, rest[0], dims)
