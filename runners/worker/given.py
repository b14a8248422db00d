"""
Values as models give them. Triton's API is C++ below, which takes some that are near: bytes for a string, the integers
of NumPy, any sequence for a list.
"""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["integer", "items", "text"]


def text(value: Any, what: str) -> str:
    """A string"""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    raise TypeError(f"expected a string as {what}, got {type(value).__name__}")


def integer(value: Any, what: str) -> int:
    """A whole number"""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"expected an int as {what}, got {type(value).__name__}") from None


def items(value: Any, what: str) -> list[Any]:
    """A list"""
    if type(value) is list or (hasattr(value, "__getitem__") and not isinstance(value, (str, bytes, dict))):
        return list(value)
    raise TypeError(f"expected a list as {what}, got {type(value).__name__}")
