"""The data types of the protocol, and what they are called elsewhere: one row each"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .errors import TritonModelException

__all__ = ["BY_DLPACK", "BY_NAME", "BY_NUMBER", "TRITON_STRING_TO_NUMPY", "Datatype", "datatype_of"]


class Datatype(NamedTuple):
    """One data type: as in the protocol, in a configuration, in the C API, in NumPy and in DLPack"""

    name: str
    config_name: str
    number: int
    # none for BF16, which NumPy does not have
    numpy: Any
    # bytes of one element; strings differ
    size: int
    # code and bits; strings have none
    dlpack: tuple[int, int] | None


_ALL = [
    Datatype("BOOL", "TYPE_BOOL", 1, np.bool_, 1, (6, 8)),
    Datatype("UINT8", "TYPE_UINT8", 2, np.uint8, 1, (1, 8)),
    Datatype("UINT16", "TYPE_UINT16", 3, np.uint16, 2, (1, 16)),
    Datatype("UINT32", "TYPE_UINT32", 4, np.uint32, 4, (1, 32)),
    Datatype("UINT64", "TYPE_UINT64", 5, np.uint64, 8, (1, 64)),
    Datatype("INT8", "TYPE_INT8", 6, np.int8, 1, (0, 8)),
    Datatype("INT16", "TYPE_INT16", 7, np.int16, 2, (0, 16)),
    Datatype("INT32", "TYPE_INT32", 8, np.int32, 4, (0, 32)),
    Datatype("INT64", "TYPE_INT64", 9, np.int64, 8, (0, 64)),
    Datatype("FP16", "TYPE_FP16", 10, np.float16, 2, (2, 16)),
    Datatype("FP32", "TYPE_FP32", 11, np.float32, 4, (2, 32)),
    Datatype("FP64", "TYPE_FP64", 12, np.float64, 8, (2, 64)),
    Datatype("BYTES", "TYPE_STRING", 13, np.object_, 0, None),
    Datatype("BF16", "TYPE_BF16", 14, None, 2, (4, 16)),
]

BY_NAME = {datatype.name: datatype for datatype in _ALL}
BY_NUMBER = {datatype.number: datatype for datatype in _ALL}
BY_DLPACK = {datatype.dlpack: datatype for datatype in _ALL if datatype.dlpack}
TRITON_STRING_TO_NUMPY = {datatype.config_name: datatype.numpy for datatype in _ALL if datatype.numpy}

# type numbers tell what differs by platform apart, like int64 and longlong, so one is asked for each
_BY_DTYPE = {np.dtype(datatype.numpy): datatype for datatype in _ALL if datatype.numpy}


def datatype_of(dtype: np.dtype[Any]) -> Datatype:
    """The data type that arrays of this dtype have, in either byte order"""
    found = _BY_DTYPE.get(dtype)
    if found is not None:
        return found
    if dtype.kind in "SU":
        return BY_NAME["BYTES"]
    # it comes from ml_dtypes, or a framework that brings one
    if dtype.name == "bfloat16":
        return BY_NAME["BF16"]
    found = _BY_DTYPE.get(dtype.newbyteorder("="))
    if found is None:
        raise TritonModelException(f"NumPy dtype is not supported: {dtype}")
    return found
