"""The protocol's data types and PyTorch's"""

import torch

from ...errors import Unsupported

__all__ = ["named", "torch_type"]

_TYPES = {
    "BOOL": torch.bool,
    "UINT8": torch.uint8,
    "UINT16": torch.uint16,
    "UINT32": torch.uint32,
    "UINT64": torch.uint64,
    "INT8": torch.int8,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "FP16": torch.float16,
    "FP32": torch.float32,
    "FP64": torch.float64,
    "BF16": torch.bfloat16,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def torch_type(datatype: str) -> torch.dtype:
    """The type of the tensors of a data type other than BYTES"""
    return _TYPES[datatype]


def named(dtype: torch.dtype, subject: str) -> str:
    """The data type of tensors of this type, which `subject` has"""
    if dtype not in _NAMES:
        raise Unsupported(f"{subject} is of type {dtype}, which the protocol does not have")
    return _NAMES[dtype]
