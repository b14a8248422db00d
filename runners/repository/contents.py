"""
What lies in a folder, by which it is known whether a model has changed.

A file has changed if its bytes have. They are read only where the system says that the file is another one, or was
written to, and only if they had been read before: a file that nobody has read counts as changed then.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import ConfigInvalid
from ..wanted import check_wanted
from .files import ENVIRONMENT_MARKS, check_file, open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DOUBT_NS", "MOST", "MOST_COMPARED", "Contents", "File", "is_being_written", "look"]

MOST: Final = 10_000
"""Files of a folder that are looked at, and directories they are looked for in"""
_LOCAL: Final = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
MOST_COMPARED: Final = 1024**3
"""Bytes of a file that is compared; a larger one has changed when it was written to"""
_CHUNK: Final = 1024 * 1024
_UNREADABLE: Final = b"?"
DOUBT_NS: Final = 2_000_000_000
"""What was written to a directory within this time need not show in its times"""

_State = tuple[int, int, int, int, int]
"""What changes when a file does"""


@dataclass(slots=True)
class File:
    """One of them"""

    state: _State
    digest: bytes = b""
    """Of its bytes; empty where they were not read"""


@dataclass
class Contents:
    """What lay in a folder, or at the place of a single file, when it was looked at; paths begin at that place"""

    place: Path
    suffix: str
    """Of the names of the files that count"""
    files: dict[str, File] = field(default_factory=dict)
    directories: dict[str, _State] = field(default_factory=dict)
    has_more: bool = False
    """Than are looked at"""
    is_certain: bool = False
    """
    Whether all directories could be listed, and had stood still for so long that their times tell of each change
    """
    is_copy: bool = False
    """Of what lies elsewhere: it stays as it is, whatever happens there"""

    def path(self, path: str) -> str:
        """The whole one"""
        return os.path.join(self.place, path) if path else str(self.place)  # noqa: PTH118 - many times a second

    def again(self) -> Contents:
        """As it is now: another one only where something may have changed"""
        if self.is_certain and self._has_same_states():
            return self
        new = look(self.place, suffix=self.suffix, known=self)
        if new.directories == self.directories and _states(new) == _states(self):
            self.is_certain = new.is_certain
            return self
        return new

    def differences(self, other: Contents, goes_on: Callable[[], bool] = lambda: True) -> list[str]:
        """
        The files that are not the same in both, and the directories that are in one of them; all that were touched,
        where it does not go on
        """
        different = other.files.keys() - self.files.keys()
        different |= {path for path in self.changed_since(other) if not self._is_same(path, other, goes_on)}
        if not self.suffix:
            different |= self.directories.keys() ^ other.directories.keys()
        return sorted(different)

    def changed_since(self, other: Contents) -> Iterator[str]:
        """The files that the system says are others, or were written to"""
        for path, file in self.files.items():
            before = other.files.get(path)
            if before is None or before.state != file.state:
                yield path

    def read_some(self, most_bytes: int, goes_on: Callable[[], bool] = lambda: True) -> int:
        """
        Reads files that were not read yet, so that it is known later what was in them, until so many bytes are read, or
        while it `goes_on`; answers how many of them are left
        """
        for path, file in self.files.items():
            if most_bytes > 0 and not file.digest and goes_on():
                file.digest = _digest(self.path(path), file.state, goes_on) or _UNREADABLE
                most_bytes -= min(file.state[2], MOST_COMPARED)
        return most_bytes

    def _is_same(self, path: str, other: Contents, goes_on: Callable[[], bool]) -> bool:
        mine, before = self.files[path], other.files.get(path)
        if before is None or before.digest in {b"", _UNREADABLE} or mine.state[2] != before.state[2]:
            return False
        mine.digest = mine.digest or _digest(self.path(path), mine.state, goes_on)
        return mine.digest == before.digest

    def _has_same_states(self) -> bool:
        try:
            return all(_state(self.path(path)) == state for path, state in self.directories.items()) and all(
                _state(self.path(path)) == file.state for path, file in self.files.items()
            )
        except OSError:
            return False


def look(place: Path, *, suffix: str = "", known: Contents | None = None) -> Contents:
    """What lies there now; `known` is what did before"""
    now = time.time_ns()
    contents = Contents(place, suffix)
    unlisted: list[str] = []
    for path, state, is_directory in _walk(str(place), suffix, unlisted):
        if len(contents.files) + len(contents.directories) == MOST:
            contents.has_more = True
            break
        if is_directory:
            contents.directories[path] = state
        else:
            before = known.files.get(path) if known else None
            contents.files[path] = before if before and before.state == state else File(state)
    is_old = all(now - state[4] > DOUBT_NS for state in contents.directories.values())
    contents.is_certain = is_old and bool(contents.directories) and not unlisted
    return contents


def is_being_written(path: str) -> bool:
    """
    Whether somebody has the file open to write to it; False as well where the file system cannot tell, or the file is
    another user's
    """
    try:
        with open_file(Path(path)) as file:
            # whoever opens it at this very moment waits until the lease is gone; its signal is one that nobody heeds
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
            try:
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except BlockingIOError:
                # other file systems say so of any file
                return _is_local(path)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (OSError, ConfigInvalid, AttributeError):
        pass
    return False


def _is_local(path: str) -> bool:
    """Whether the file system is one of this machine's own"""
    place = os.path.realpath(path)
    kinds: dict[str, str] = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        mount, _, kind = line.partition(" - ")
        root = mount.split(" ")[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        if f"{place}/".startswith(root if root == "/" else f"{root}/"):
            # the last one of a place hides the others
            kinds[root] = kind.split(" ")[0]
    return kinds.get(max(kinds, key=len, default="")) in _LOCAL


def _walk(top: str, suffix: str, unlisted: list[str]) -> Iterator[tuple[str, _State, bool]]:
    """
    Files and directories with their states; `unlisted` gets what cannot be looked at. Links are followed, but not back
    to where they are
    """
    waiting: list[tuple[str, tuple[tuple[int, ...], ...]]] = [("", ())]
    above = f"{os.path.realpath(top)}/"
    while waiting:
        at, around = waiting.pop()
        directory = os.path.join(top, at) if at else top  # noqa: PTH118 - many times a second
        check_wanted()
        try:
            state = _state(directory)
            if not at and not os.path.isdir(top):  # noqa: PTH112 - as above
                yield "", state, False
                return
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError:
            unlisted.append(at)
            continue
        if state[:2] in around:
            continue
        yield at, state, True
        is_environment = any(entry.name in ENVIRONMENT_MARKS for entry in entries)
        for entry in filter(_counts, entries):
            path = f"{at}/{entry.name}" if at else entry.name
            try:
                if entry.is_dir():
                    if not is_environment and not (entry.is_symlink() and above.startswith(_real(entry.path))):
                        waiting.append((path, (*around, state[:2])))
                elif entry.name.endswith(suffix):
                    yield path, _state(entry.path), False
            except OSError:
                # it has just gone, or leads nowhere
                unlisted.append(path)


def _counts(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and entry.name != "__pycache__"


def _real(path: str) -> str:
    return f"{os.path.realpath(path)}/"


def _state(path: str) -> _State:
    found = os.stat(path)  # noqa: PTH116 - many times a second
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _states(contents: Contents) -> dict[str, _State]:
    return {path: file.state for path, file in contents.files.items()}


def _digest(path: str, state: _State, goes_on: Callable[[], bool] = lambda: True) -> bytes:
    """Of the bytes of a file; empty where it is too large, none that can be read, or changes meanwhile"""
    found, left = hashlib.blake2b(digest_size=16), state[2]
    if left > MOST_COMPARED:
        return b""
    try:
        check_file(Path(path))
        with open_file(Path(path)) as file:
            while left > 0 and goes_on() and (chunk := file.read(min(_CHUNK, left))):
                found.update(chunk)
                left -= len(chunk)
        return found.digest() if not left and _state(path) == state else b""
    except (OSError, ConfigInvalid):
        return b""
