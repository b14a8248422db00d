"""
Where the processes of one `bentoml serve` meet: paths of sockets and of a pipe that each of them works out for itself.

BentoML tells all workers the same address of a service, one part of which is random; the paths follow from it. They lie
in a directory of this user alone.
"""

import contextlib
import errno
import os
import socket
import stat
import tempfile
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ..environment import runtime_directory
from ..errors import ConfigInvalid
from .lifeline import hold_lifeline

__all__ = ["Place", "place_of", "remove_left_behind"]

_YOUNG_SECONDS = 10.0


@dataclass(frozen=True)
class Place:
    """The sockets of one engine"""

    local: Path
    http: Path
    grpc: Path
    """Where the engine takes connections that speak gRPC"""
    presence: Path
    """The socket that every worker which may still ask is connected to"""
    lifeline: Path
    """The pipe that those workers hold open, too"""


def place_of(address: str) -> Place:
    """The sockets of the engine whose service has this address"""
    stem = _directory() / sha256(address.encode()).hexdigest()[:16]
    return Place(*(stem.with_suffix(f".{name}") for name in ("local", "http", "grpc", "presence", "lifeline")))


def remove_left_behind() -> None:
    """Removes what services left that were killed: sockets that nobody listens to, pipes that nobody reads"""
    for path in _directory().iterdir():
        # Another start or end may take it away, and one that is being made has no listener yet.
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _YOUNG_SECONDS and _is_left_behind(path):
                path.unlink()


def _is_left_behind(path: Path) -> bool:
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(0)
            return probe.connect_ex(str(path)) == errno.ECONNREFUSED
    if path.is_fifo():
        try:
            os.close(hold_lifeline(path))
        except OSError as error:
            return error.errno == errno.ENXIO
    return False


def _directory() -> Path:
    given = runtime_directory()
    path = given / "kushi" if given else Path(tempfile.gettempdir(), f"kushi-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigInvalid(
            f"'{path}' must be a directory of this user alone: remove it, or set TMPDIR to another place"
        )
    return path
