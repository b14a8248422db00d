"""Arrays of NumPy as TensorRT's tensors, and back. NumPy itself has no BF16: its values travel as the bits of it"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["answered", "bits_of", "dtype_of", "put"]

_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "INT8": np.dtype(np.int8),
    "UINT8": np.dtype(np.uint8),
    "FP16": np.dtype(np.float16),
    "BF16": np.dtype(np.uint16),
    "INT32": np.dtype(np.int32),
    "FP32": np.dtype(np.float32),
    "INT64": np.dtype(np.int64),
}


def dtype_of(datatype: str) -> np.dtype[Any]:
    """What its memory is"""
    return _DTYPES[datatype]


def bits_of(array: NDArray[Any], datatype: str) -> NDArray[Any]:
    """An input as its memory is to be"""
    if datatype != "BF16":
        return array
    if array.dtype == np.float32:
        # the same value in the upper half
        return (array.view(np.uint32) >> 16).astype(np.uint16)
    return array.view(np.uint16)


def put(array: NDArray[Any], block: NDArray[np.uint8], shape: tuple[int, ...]) -> None:
    """Writes an input into memory that has room for it, with zeros where it is smaller than `shape`"""
    target = block[: int(np.prod(shape, dtype=np.int64)) * array.itemsize].view(array.dtype).reshape(shape)
    if array.shape != shape:
        target[...] = 0
        target = target[tuple(map(slice, array.shape))]
    np.copyto(target, array)


def answered(block: NDArray[np.uint8], datatype: str, shape: tuple[int, ...], lain: tuple[int, ...]) -> NDArray[Any]:
    """The part of `shape` of an output that was written with the shape `lain`"""
    dtype = _DTYPES[datatype]
    whole = block[: int(np.prod(lain, dtype=np.int64)) * dtype.itemsize].view(dtype).reshape(lain)
    found = whole if shape == lain else np.ascontiguousarray(whole[tuple(map(slice, shape))])
    # BF16 is given to the core as numbers that it halves
    return (found.astype(np.uint32) << 16).view(np.float32) if datatype == "BF16" else found
