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
_MOST_PAIRS = 65_536
_MOST_TEXT = 64 << 20
_MOST_ITEMS = 16 << 20


def read_metadata(path: Path) -> Mapping[str, Any]:
    """Its keys and values; ConfigInvalid where it is no such file"""
    try:
        with path.open("rb") as file:
            return _read(file)
    except (OSError, EOFError, ValueError, struct.error) as error:
        raise ConfigInvalid(f"'{path}' cannot be read as GGUF: {error}") from error


def _read(file: BinaryIO) -> Mapping[str, Any]:
    if _bytes(file, 4) != _MAGIC:
        raise ValueError("it does not begin with 'GGUF'")
    version = _number(file, "I")
    if version not in _VERSIONS:
        raise ValueError(f"its version is {version}, expected 2 or 3, in the byte order of most machines")
    _number(file, "Q")
    pairs = _number(file, "Q")
    if pairs > _MOST_PAIRS:
        raise ValueError(f"it says that it has {pairs} keys")
    found: dict[str, Any] = {}
    for _ in range(pairs):
        key = _text(file)
        found[key] = _value(file, _number(file, "I"))
    return found


def _value(file: BinaryIO, kind: int) -> Any:  # noqa: ANN401 - of any kind
    if kind == _TEXT:
        return _text(file)
    if kind == _LIST:
        of, count = _number(file, "I"), _number(file, "Q")
        if count > _MOST_ITEMS:
            raise ValueError(f"a list of it has {count} items")
        if of in _NUMBERS:
            form = f"<{count}{_NUMBERS[of]}"
            return list(struct.unpack(form, _bytes(file, struct.calcsize(form))))
        if of == _TEXT:
            return [_text(file) for _ in range(count)]
        raise ValueError(f"a list of it has items of the unknown kind {of}")
    if kind in _NUMBERS:
        return _number(file, _NUMBERS[kind])
    raise ValueError(f"a value of it has the unknown kind {kind}")


def _number(file: BinaryIO, form: str) -> Any:  # noqa: ANN401 - as the form says
    form = f"<{form}"
    return struct.unpack(form, _bytes(file, struct.calcsize(form)))[0]


def _text(file: BinaryIO) -> str:
    length = _number(file, "Q")
    if length > _MOST_TEXT:
        raise ValueError(f"a text of it has {length} bytes")
    return _bytes(file, length).decode("utf-8", "replace")


def _bytes(file: BinaryIO, count: int) -> bytes:
    read = file.read(count)
    if len(read) != count:
        raise EOFError("it ends too early")
    return read
