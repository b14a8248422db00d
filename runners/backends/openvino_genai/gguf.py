"""What a GGUF file says of itself: its metadata. The weights are not read here"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import ConfigInvalid

__all__ = ["read_metadata"]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_MOST_BYTES = 256 << 20
_MOST_VALUES = 4 << 20
"""Of all metadata together, items of lists among them: what Python keeps of one is several times as large"""


def read_metadata(path: Path) -> Mapping[str, Any]:
    """Its keys and values; ConfigInvalid where it is no such file"""
    try:
        with path.open("rb") as file:
            return _Reader(file).metadata()
    except (OSError, EOFError, ValueError) as error:
        raise ConfigInvalid(f"'{path}' cannot be read as GGUF: {error}") from error


class _Reader:
    """From the beginning of a file on, as far as all that it says of itself may be long"""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes_left = _MOST_BYTES
        self._values_left = _MOST_VALUES

    def metadata(self) -> Mapping[str, Any]:
        if self._bytes(4) != _MAGIC:
            raise ValueError("it does not begin with 'GGUF'")
        version = self._number("I")
        if version not in _VERSIONS:
            raise ValueError(f"its version is {version}, expected 2 or 3, in the byte order of most machines")
        _tensors, pairs = self._number("Q"), self._number("Q")
        self._count(pairs)
        found: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._text()
            found[key] = self._value(self._number("I"))
        return found

    def _value(self, kind: int) -> Any:  # noqa: ANN401 - of any kind
        if kind == _TEXT:
            return self._text()
        if kind == _LIST:
            return self._list()
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        raise ValueError(f"a value of it has the unknown kind {kind}")

    def _list(self) -> list[Any]:
        kind, count = self._number("I"), self._number("Q")
        self._count(count)
        if kind in _NUMBERS:
            form = f"<{count}{_NUMBERS[kind]}"
            return list(struct.unpack(form, self._bytes(struct.calcsize(form))))
        if kind == _TEXT:
            return [self._text() for _ in range(count)]
        raise ValueError(f"a list of it has items of the unknown kind {kind}")

    def _number(self, form: str) -> Any:  # noqa: ANN401 - as the form says
        form = f"<{form}"
        return struct.unpack(form, self._bytes(struct.calcsize(form)))[0]

    def _text(self) -> str:
        return self._bytes(self._number("Q")).decode("utf-8", "replace")

    def _count(self, values: int) -> None:
        self._values_left -= values
        if self._values_left < 0:
            raise ValueError(f"it says of itself more than {_MOST_VALUES} values")

    def _bytes(self, count: int) -> bytes:
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise ValueError(f"it says of itself more than {_MOST_BYTES} bytes")
        read = self._file.read(count)
        if len(read) != count:
            raise EOFError("it ends too early")
        return read
