"""Differences between the arrays that two forms of a model answer"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .tolerance import Difference, Tolerance

__all__ = ["are_alike", "are_numbers", "as_plain", "close", "cosine", "difference", "largest"]

_Array = NDArray[Any]


def are_numbers(array: _Array) -> bool:
    """Also those of types that NumPy does not know by itself, as bfloat16"""
    return array.dtype.kind in "biuf" or (array.dtype.kind == "V" and array.dtype.names is None)


def difference(answered: _Array, wanted: _Array) -> Difference:
    """
    Of two arrays of numbers and of one shape. What is no number, or infinite, where the original has one is as far as
    can be.
    """
    one, two = _wide(answered), _wide(wanted)
    with np.errstate(invalid="ignore"):
        apart = np.where(one == two, 0.0, np.abs(one - two))
    apart = np.where(np.isnan(one) != np.isnan(two), np.inf, apart)
    absolute = float(np.nanmax(apart, initial=0.0))
    if not absolute and wanted.dtype.kind in "iu" and not np.array_equal(answered, wanted):
        # beyond what a float64 tells apart
        absolute = 1.0
    whole = largest(wanted)
    return Difference(absolute, absolute / whole if absolute and whole else absolute)


def as_plain(array: _Array) -> _Array:
    """
    Texts as bytes with a dot behind them, numbers of types that NumPy does not know as FP32: what can be written to a
    file, and compared
    """
    if array.dtype.kind == "V":
        return array.astype(np.float32)
    if array.dtype.kind not in "OU":
        return np.asarray(array, order="C")
    # NumPy drops zeros at the end of bytes
    texts = [(one.encode() if isinstance(one, str) else bytes(one)) + b"." for one in array.reshape(-1)]
    return np.array(texts, np.bytes_).reshape(array.shape)


def are_alike(answered: Mapping[str, _Array], wanted: Mapping[str, _Array], tolerance: Tolerance) -> bool:
    """All outputs, in shape and content"""
    return answered.keys() == wanted.keys() and all(
        answered[name].shape == array.shape and close(answered[name], array, tolerance)
        for name, array in wanted.items()
    )


def cosine(answered: _Array, wanted: _Array) -> float:
    """Of the angle between the numbers of two arrays, those of the original that are finite; 1 where both are zero"""
    one, two = _wide(answered).reshape(-1), _wide(wanted).reshape(-1)
    finite = np.isfinite(two)
    one, two = np.nan_to_num(one[finite], posinf=0.0, neginf=0.0), two[finite]
    lengths = float(np.linalg.norm(one) * np.linalg.norm(two))
    if not lengths:
        return float(not one.any() and not two.any())
    return min(1.0, float(one @ two) / lengths)


def largest(array: _Array) -> float:
    """The largest finite number, whatever its sign"""
    wide = _wide(array)
    return float(np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0))


def close(answered: _Array, wanted: _Array, tolerance: Tolerance) -> bool:
    """Whole numbers and texts have to be the same"""
    if wanted.dtype.kind in "biuOSU" or answered.dtype.kind in "OSU":
        return bool(np.array_equal(answered, wanted))
    one, two = _wide(answered), _wide(wanted)
    return bool(np.allclose(one, two, atol=tolerance.absolute, rtol=tolerance.relative, equal_nan=True))


def _wide(array: _Array) -> _Array:
    wide: _Array = array.astype(np.float64)
    return wide
