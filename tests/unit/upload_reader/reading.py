"""What the process of an `UploadReader` is asked to do in tests: it finds functions by the names of their modules"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "allocate",
    "compute",
    "end",
    "keep_memory",
    "length",
    "lines",
    "process",
    "refuse",
    "refuse_text",
    "say_much",
    "until_there",
]


class Refused(ValueError):
    pass


def length(data: bytes) -> int:
    return len(data)


def lines(data: bytes) -> Iterator[bytes]:
    yield from data.splitlines()


def process(_: bytes) -> int:
    return os.getpid()


def refuse(data: bytes) -> None:
    raise Refused(f"{len(data)} bytes")


def refuse_text(text: str) -> None:
    raise Refused(text)


def compute(_: bytes) -> None:
    while True:
        pass


def allocate(_: bytes) -> None:
    bytearray(1 << 30)


_kept: list[bytearray] = []


def keep_memory(data: bytes) -> int:
    """As a decoder that leaks"""
    _kept.append(bytearray(24 << 20))
    return len(data)


def end(data: bytes) -> None:
    """By the signal whose number the file has"""
    os.kill(os.getpid(), int(data))


def say_much(data: bytes) -> int:
    sys.stdout.write("x" * 100_000)
    os.write(2, b"y" * 100_000)
    return len(data)


def until_there(data: bytes) -> str:
    """Says at the path that the file has that it has begun, and waits until there is one with `go` behind its name"""
    begun = Path(data.decode())
    begun.touch()
    while not begun.with_name(f"{begun.name}go").exists():
        time.sleep(0.005)
    return begun.name
