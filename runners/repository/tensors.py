"""What a model file says of its inputs and outputs, and the names of data types"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .messages import DataType, ModelInput, ModelOutput

__all__ = [
    "BYTES_OF",
    "TensorInfo",
    "config_type",
    "fits",
    "model_dims",
    "protocol_type",
    "scalar_names",
    "shape_text",
    "tensor_infos",
]

BYTES_OF: Mapping[str, int] = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "FP32": 4,
    "FP64": 8,
    "BF16": 2,
    # that of an empty text
    "BYTES": 4,
}
"""Of one element of each data type"""


@dataclass(frozen=True)
class TensorInfo:
    """
    One input or output as the model file declares it: -1 is a dimension of any size, () a scalar; of `any_rank` where
    the file does not say how many dimensions there are
    """

    name: str
    datatype: str
    dims: tuple[int, ...]
    any_rank: bool = False


def tensor_infos(declared: Iterable[tuple[str, str, Sequence[int] | None]]) -> list[TensorInfo]:
    """What the native core says of a model's tensors: name, data type, and dimensions where they are known"""
    return [TensorInfo(name, datatype, tuple(dims or ()), any_rank=dims is None) for name, datatype, dims in declared]


def protocol_type(data_type: int) -> str:
    """The Open Inference Protocol's name of a data type of config.pbtxt"""
    name = DataType.Name(data_type).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


def config_type(datatype: str) -> int:
    """The data type of config.pbtxt that the Open Inference Protocol calls `datatype`"""
    return DataType.Value("TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}")


def model_dims(tensor: ModelInput | ModelOutput) -> tuple[int, ...]:
    """The shape that the model has by its configuration, without the batch; clients may see another one"""
    return tuple(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)


def fits(shape: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether an array of this shape is one of these dimensions, of which -1 is any size"""
    return len(shape) == len(dims) and all(dim in (-1, size) for size, dim in zip(shape, dims, strict=True))


def shape_text(dims: tuple[int, ...]) -> str:
    """A shape as Triton prints it"""
    return f"[{','.join(map(str, dims))}]"


def scalar_names(tensors: Iterable[TensorInfo]) -> list[str]:
    """The tensors of rank 0"""
    return [tensor.name for tensor in tensors if not tensor.dims and not tensor.any_rank]
