"""
Where the processes of one `bentoml serve` meet: paths of sockets that each of them works out for itself.

BentoML tells all workers the same address of a service, one part of which is random; the paths follow from it. They lie
in a directory of this user alone.
"""

import contextlib
import os
import socket
import stat
import tempfile
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from bentoml._internal.configuration.containers import BentoMLContainer

from ..errors import ConfigInvalid
from ..settings import runtime_directory

__all__ = ["Place", "address_of", "place_of", "remove_left_behind"]

_YOUNG_SECONDS = 10.0


@dataclass(frozen=True)
class Place:
    """The sockets of one engine"""

    local: Path
    http: Path
    presence: Path
    """Held open by every worker that may still ask"""


def address_of(service: str) -> str | None:
    """What BentoML has told this process of a service; None outside `bentoml serve`, where each process has its own"""
    addresses: dict[str, str] = BentoMLContainer.remote_runner_mapping.get()
    return addresses.get(service)


def place_of(address: str) -> Place:
    """The sockets of the engine whose service has this address"""
    stem = _directory() / sha256(address.encode()).hexdigest()[:16]
    return Place(*(stem.with_suffix(f".{name}") for name in ("local", "http", "presence")))


def remove_left_behind() -> None:
    """Removes the sockets of services that were killed: those that nobody listens to"""
    for path in _directory().iterdir():
        # Another start or end may take it away, and one that is being made has no listener yet.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            if time.time() - path.stat().st_mtime > _YOUNG_SECONDS and path.is_socket():
                probe.settimeout(0)
                try:
                    probe.connect(str(path))
                except ConnectionRefusedError:
                    path.unlink()


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
