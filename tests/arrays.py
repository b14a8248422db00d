"""Arrays of every data type, for tests that send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["DTYPES", "LARGE", "ones", "sample"]

Array = NDArray[Any]

DTYPES: Final[Mapping[str, DTypeLike]] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BF16": ml_dtypes.bfloat16,
}
"""The dtype of every data type but BYTES"""

LARGE: Final = 5000
"""Elements of a row that even as single bytes are shown rather than copied, four rows together"""


def ones(rows: int = 1) -> Array:
    return np.ones((rows, 16), np.int32)


def sample(dtype: DTypeLike, columns: int = 5) -> Array:
    return np.arange(2 * columns).reshape(2, columns).astype(dtype)
