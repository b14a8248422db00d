"""Shared memory objects of a client, as files: what a test cuts short cannot fault in the test itself."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Object"]

DIRECTORY: Final = Path("/dev/shm")
NUMBERS: Final = count()


class Object:
    """A POSIX shared memory object, gone at the end of its block."""

    def __init__(self, content: bytes | int, key: str | None = None) -> None:
        """``content`` is the bytes, or how many of them, all zero and none of them taken from the machine yet."""
        self.key = key or f"/kushi-test-{os.getpid()}-{next(NUMBERS)}"
        self.path = DIRECTORY / self.key.strip("/")
        self.create(content)

    def create(self, content: bytes | int) -> None:
        """Makes the object, in the place of one that was unlinked."""
        with self.path.open("xb") as file:
            if isinstance(content, int):
                file.truncate(content)
            else:
                file.write(content)

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def read(self, offset: int = 0, size: int = -1) -> bytes:
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def write(self, content: bytes, offset: int = 0) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(content)

    def resize(self, size: int) -> None:
        os.truncate(self.path, size)

    def unlink(self) -> None:
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unlink()
