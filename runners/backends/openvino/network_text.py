"""
The text of a network of OpenVINO's own format, which is XML, read piece by piece.

A document type is refused where it begins: its entities would become a text of any length, and OpenVINO knows none. So
is what takes long to read: a long text, one that is nested deeply, and a tag or a comment that does not end, which is
read again with each piece.
"""

import os
from collections.abc import Callable
from typing import BinaryIO
from xml.parsers import expat

from ...wanted import check_wanted

__all__ = ["Begin", "End", "read_network"]

_MOST_BYTES = 256 * 1024 * 1024
"""Large networks have some ten million: weights are in another file"""
_MOST_TAG_BYTES = 16 * 1024 * 1024
"""An attribute may hold a text as long as a vocabulary"""
_DEEPEST = 1000
"""The body of a loop is seven tags below it; the parser keeps each that is open"""
_PIECE_BYTES = 1024 * 1024

Begin = Callable[[str, dict[str, str]], None]
"""Called with a tag and its attributes"""
End = Callable[[str], None]


def read_network(file: BinaryIO, begin: Begin, end: End | None = None) -> None:
    """Calls for each tag of the text in `file`; raises ExpatError or ValueError where it is not one of a network"""
    size = os.fstat(file.fileno()).st_size
    if size > _MOST_BYTES:
        raise ValueError(f"its text has {size} bytes, expected at most {_MOST_BYTES}")
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse
    depth = 0

    def enter(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise ValueError(f"its text is nested more than {_DEEPEST} tags deep")
        begin(tag, attributes)

    def leave(tag: str) -> None:
        nonlocal depth
        depth -= 1
        if end is not None:
            end(tag)

    parser.StartElementHandler = enter
    parser.EndElementHandler = leave
    taken = 0
    # it may grow meanwhile
    while taken <= size and (piece := file.read(_PIECE_BYTES)):
        check_wanted()
        parser.Parse(piece, False)  # noqa: FBT003 - it takes no names
        taken += len(piece)
        if taken - parser.CurrentByteIndex > _MOST_TAG_BYTES:
            raise ValueError(f"its text has a tag of more than {_MOST_TAG_BYTES} bytes")
    parser.Parse(b"", True)  # noqa: FBT003 - as above


def _refuse(name: str, *_: object) -> None:
    raise ValueError(f"its text has a document type ('{name}'), which no network has")
