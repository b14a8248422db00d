"""The head of a plan file: which TensorRT wrote it, found without TensorRT"""

import struct
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigInvalid

__all__ = ["PlanHeader", "read_header"]

_TAGS = (b"ftrt", b"vtrt")
"""TensorRT's, and that of TensorRT for RTX, whose heads have the same layout"""
_FORMAT = struct.Struct("<4sI16x4B")
_KNOWN_LAYOUT = 0
_FIRST_MAJOR = 8
"""Of TensorRT, with heads of this kind. Releases of TensorRT for RTX count from 1"""


@dataclass(frozen=True)
class PlanHeader:
    """Of a plan whose head can be read"""

    version: tuple[int, ...] | None
    """Of the TensorRT that wrote it, four numbers; nothing where the file has a layout that is not known here"""

    @property
    def is_rtx(self) -> bool:
        """Whether it is one of TensorRT for RTX, which no other TensorRT opens"""
        return self.version is not None and self.version[0] < _FIRST_MAJOR

    @property
    def written_by(self) -> str:
        """As a message says it"""
        name = "TensorRT-RTX" if self.is_rtx else "TensorRT"
        return f"{name} {'.'.join(map(str, self.version))}" if self.version else "another TensorRT"


def read_header(path: Path) -> PlanHeader:
    """Raises for what is no plan at all"""
    with path.open("rb") as file:
        head = file.read(_FORMAT.size)
    if len(head) < _FORMAT.size or head[:4] not in _TAGS:
        raise ConfigInvalid(
            f"'{path}' is not a TensorRT plan: expected the first bytes '{_TAGS[0].decode()}', as trtexec and "
            "'kushi export --to tensorrt' write them"
        )
    _, layout, *version = _FORMAT.unpack(head)
    return PlanHeader(tuple(version) if layout == _KNOWN_LAYOUT else None)
