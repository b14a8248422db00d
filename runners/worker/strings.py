"""Strings on the wire: each is its length, four bytes in little endian, and then its bytes"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

__all__ = ["decoded", "encoded"]

_LENGTH = struct.Struct("<I")


def encoded(array: np.ndarray[Any, Any]) -> bytes:
    """The elements of an array, in C order; what is neither bytes nor a string is written as str() says it"""
    pieces = []
    for element in array.ravel(order="C").tolist():
        if isinstance(element, bytes):
            piece = element
        elif isinstance(element, (bytearray, memoryview)):
            piece = bytes(element)
        else:
            piece = str(element).encode()
        pieces.append(_LENGTH.pack(len(piece)))
        pieces.append(piece)
    return b"".join(pieces)


def decoded(payload: bytes | bytearray | memoryview) -> np.ndarray[Any, np.dtype[np.object_]]:
    """One element of bytes for each string, in one dimension"""
    whole = bytes(payload)
    end = len(whole)
    strings = []
    offset = 0
    while offset < end:
        if offset + 4 > end:
            raise ValueError(f"the length of a string ends at byte {offset + 4} of {end}")
        start = offset + 4
        offset = start + int.from_bytes(whole[offset:start], "little")
        if offset > end:
            raise ValueError(f"a string ends at byte {offset} of {end}")
        strings.append(whole[start:offset])
    array: np.ndarray[Any, np.dtype[np.object_]] = np.empty(len(strings), dtype=np.object_)
    array[:] = strings
    return array
