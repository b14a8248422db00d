"""Writes what was built to a file"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from .library import trt

__all__ = ["memory_of", "write_file"]


def memory_of(made: trt.IHostMemory) -> memoryview:
    """What TensorRT has made in the memory of the host, which it shows as a buffer"""
    whole: Any = made
    return memoryview(whole)


def write_file(path: Path, content: memoryview) -> None:
    """In one step: whoever reads it sees all of it, and another build of the same has a file of its own meanwhile"""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}-{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
