"""
The files of a model, as they are read here: regular files alone, each kind with a bound.

Whoever may write a model may write a pipe that nobody fills, a device without an end, a link to nowhere, or one to a
file that the kernel makes up as it is read. None of these is read, waited for, or taken for a file that is not there.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import ConfigInvalid

__all__ = [
    "ENVIRONMENT_MARKS",
    "MOST_BYTES",
    "check_file",
    "check_link",
    "is_environment",
    "is_within",
    "open_file",
    "read_file",
]

ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
"""What only directories have that are environments: their files are no code of the model"""
MOST_BYTES = {
    "configuration": 1024 * 1024,
    "requirements file": 1024 * 1024,
    "label file": 16 * 1024 * 1024,
    "Python file": 16 * 1024 * 1024,
    "tokenizer": 128 * 1024 * 1024,
    "warm-up file": 1024 * 1024 * 1024,
}
"""What is read whole, and how large it may be"""

_OF_THE_KERNEL = (Path("/proc"), Path("/sys"))
_KINDS = (
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)


def read_file(path: Path, kind: str, *, within: Path | None = None) -> bytes:
    """The content of a regular file, see `open_file`; raises OSError where the system refuses it"""
    check_file(path)
    most = MOST_BYTES[kind]
    with open_file(path, within=within) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ConfigInvalid(f"{kind} '{path}' has more than {most} bytes")
    return content


@contextmanager
def open_file(path: Path, *, within: Path | None = None) -> Iterator[BinaryIO]:
    """A regular file to be read; raises where it is none, or does not lie below `within`, links followed"""
    with open(path, "rb", opener=_open_at_once) as file:
        # what lies there now need not be what was looked at
        _check_kind(path, os.fstat(file.fileno()))
        if within and not is_within(Path(f"/proc/self/fd/{file.fileno()}"), within):
            raise ConfigInvalid(f"'{path}' lies outside of '{within}'")
        yield file


def check_file(path: Path) -> None:
    """Raises unless it is a regular file; a file that is not there raises OSError"""
    check_link(path)
    _check_kind(path, path.stat())


def check_link(path: Path) -> None:
    """Raises where a link leads nowhere, or in a circle"""
    if not os.path.islink(path):  # noqa: PTH114 - names too long are none
        return
    end, target = os.path.realpath(path), os.readlink(path)  # noqa: PTH115 - as above
    if not os.path.lexists(end):
        raise ConfigInvalid(f"'{path}' is a link to '{target}', which is not there")
    if os.path.islink(end):  # noqa: PTH114 - as above
        raise ConfigInvalid(f"'{path}' is a link to '{target}', which leads to itself")


def is_environment(directory: Path) -> bool:
    return any((directory / mark).exists() for mark in ENVIRONMENT_MARKS)


def is_within(path: Path, root: Path) -> bool:
    """Whether the path, links followed, is below `root`"""
    if "\0" in str(path):
        return False
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _check_kind(path: Path, found: os.stat_result) -> None:
    mode = found.st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "special file")
        raise ConfigInvalid(f"'{path}' is a {kind}, expected a regular file")
    # they call themselves regular; where nothing is mounted, the device is that of other files
    place = Path(os.path.realpath(path))
    of_kernel = (
        root.is_mount() and (root in place.parents or root.stat().st_dev == found.st_dev) for root in _OF_THE_KERNEL
    )
    if any(of_kernel):
        raise ConfigInvalid(f"'{path}' is a file of the kernel, expected a regular file")


def _open_at_once(path: str, flags: int) -> int:
    """A pipe would wait for whoever writes to it"""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
