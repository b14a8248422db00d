"""
Values as models give them. Triton's API is C++ below, which takes some that are near: bytes for a string, the integers
of NumPy, any sequence for a list.
"""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["integer", "items", "text", "unsigned"]


def text(value: Any, what: str) -> str:
    """A string"""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise TypeError(f"expected text in UTF-8 as {what}: {error}") from None
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


def unsigned(value: Any, what: str, bits: int) -> int:
    """A whole number from 0 on, of so many bits at most"""
    number = integer(value, what)
    if number >> bits:
        raise TypeError(f"expected an int from 0 to {(1 << bits) - 1} as {what}, got {number}")
    return number


def items(value: Any, what: str) -> list[Any]:
    """A list"""
    if type(value) is list or (hasattr(value, "__getitem__") and not isinstance(value, (str, bytes, dict))):
        return list(value)
    raise TypeError(f"expected a list as {what}, got {type(value).__name__}")
