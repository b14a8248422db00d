"""
Constants of a network of OpenVINO's own format that are strings. OpenVINO reads as many of them as their shape says,
however many there are: beyond the last one it reads memory that is something else, and the process ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

from ...errors import ConfigInvalid
from .network_text import read_network

__all__ = ["check_constants"]

_LOOKED_AT_BYTES = 4096
# marks of the order of bytes, and white space
_BEFORE_XML = b"\xef\xbb\xbf\xff\xfe \t\r\n"
# as text: long numbers cost a multiple of their length to multiply, and nobody else runs Python meanwhile
_MOST_SHAPE = 1024


@dataclass(frozen=True)
class _Constant:
    name: str
    strings: int
    """That its shape says"""
    offset: int
    """In the file of the weights"""


def check_constants(path: Path) -> None:
    """Raises where a constant has fewer strings than its shape says; of files in other formats nothing is looked at"""
    try:
        wrong = _with_too_few(path)
    except (expat.ExpatError, LookupError, ValueError, OverflowError, OSError) as error:
        raise ConfigInvalid(f"openvino model '{path}': its constants cannot be read: {error}") from None
    if wrong:
        constant, found = wrong
        raise ConfigInvalid(
            f"openvino model '{path}': constant '{constant.name}' has {found} strings, its shape says "
            f"{constant.strings}"
        )


def _with_too_few(path: Path) -> tuple[_Constant, int] | None:
    """The first one, and how many it has"""
    with path.open("rb") as file:
        head = file.read(_LOOKED_AT_BYTES).replace(b"\0", b"").lower()
        if not head.lstrip(_BEFORE_XML).startswith(b"<") and b"<net" not in head:
            return None
        file.seek(0)
        constants = list(_string_constants(file))
    if not constants:
        return None
    if not path.suffix or path.name.endswith("."):
        raise ValueError("the file has no extension, by which OpenVINO finds its weights")
    with path.with_suffix(".bin").open("rb") as weights:
        for constant in constants:
            found = _strings_at(weights, constant.offset)
            if found < constant.strings:
                return constant, found
    return None


def _string_constants(file: BinaryIO) -> Iterator[_Constant]:
    found: list[_Constant] = []
    layer = ""

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal layer
        if tag == "layer":
            layer = attributes.get("name", "")
        elif tag == "data" and attributes.get("element_type", "").lower() == "string" and "offset" in attributes:
            if len(attributes["shape"]) > _MOST_SHAPE:
                raise ValueError(f"the shape of constant '{layer}' is longer than any")
            dims = [int(size) for size in attributes["shape"].split(",") if size.strip()]
            if min(dims, default=0) < 0:
                raise ValueError(f"constant '{layer}' has the shape {attributes['shape']}")
            found.append(_Constant(layer, prod(dims), int(attributes["offset"])))

    read_network(file, begin)
    yield from found


def _strings_at(weights: BinaryIO, offset: int) -> int:
    """Their number stands before them"""
    weights.seek(offset)
    head = weights.read(4)
    return int.from_bytes(head, "little") if len(head) == 4 else 0
