"""
Files of objects on this machine, for all servers here: fetched once, kept over their ends, and bounded.

    files/KEY            the content of an object; KEY is of its store, path and tag, so that it never changes
    listings/KEY.json    what was listed last of a repository
    fetching             of which a byte is held by whoever fetches a model
    served/NAME/…        the models of one engine, made of links to the files; it goes with its engine
    served/NAME.lock     held by the process of that engine for as long as it lives

A file is whole under its name, or not there: it is written beside and renamed. One that somebody has written to since
shows a time that is not its own, and is fetched again. Until the disk has all of it, its time counts in this run of the
machine alone. A file counts as in use while an engine has a link to it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import struct
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final

from ..errors import ConfigInvalid, ShuttingDown
from ..wanted import check_wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Cache", "Served", "is_same"]

_LOG = logging.getLogger(__name__)
_COPIED: Final = 1024 * 1024
"""So many bytes are copied and not linked, so that a model may change its small files"""
_FIRST_TIME: Final = 1_000_000_000
_TIMES: Final = 500_000_000
_SECOND_NS: Final = 1_000_000_000
_LOOK_SECONDS: Final = 0.1
_SAYS_SECONDS: Final = 2.0
_ELSEWHERE: Final = "--bucket-cache-directory chooses another place"


class Cache:
    """One directory of them"""

    def __init__(self, directory: Path, most_bytes: int) -> None:
        self.directory, self._most_bytes = directory, most_bytes
        self._room = 0
        """As it was counted last, less what was written since"""
        self._counting = threading.Lock()
        try:
            self.make()
            owner = (directory / "files").stat().st_uid
            self._forget_the_dead()
        except OSError as error:
            raise ConfigInvalid(
                f"models of buckets are kept in '{directory}', which cannot be written: {error.strerror}; {_ELSEWHERE}"
            ) from None
        if owner != os.geteuid():
            raise ConfigInvalid(f"models of buckets are kept in '{directory}', which is another user's: {_ELSEWHERE}")

    def make(self) -> None:
        """Its directories, as far as they are not there"""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in ("files", "listings", "served"):
            (self.directory / name).mkdir(exist_ok=True, mode=0o700)

    def served(self) -> Served:
        """A new place for the models of one engine"""
        with self._alone():
            place = Path(mkdtemp(dir=self.directory / "served", prefix=f"{os.getpid()}-"))
            held = _hold(place.with_name(f"{place.name}.lock"))
        return Served(self, place, held)

    def take(self, key: str, size: int, at: Path) -> bool:
        """Whether the file is there, whole and as it was written; from then on it lies at that place as well"""
        file = self.file(key)
        try:
            _link(file, at, size)
        except FileNotFoundError:
            at.unlink(missing_ok=True)
            return False
        if not _is_its_own(file if size <= _COPIED else at, key, size):
            at.unlink()
            return False
        with suppress(OSError):
            # when it was used last
            os.utime(file, ns=(time.time_ns(), file.stat().st_mtime_ns))
        return True

    def put(self, key: str, size: int, written: Path) -> None:
        """A file that is whole becomes the one of that key, and stays where it was written"""
        file, new = self.file(key), self.file(f"{key}.new")
        os.utime(written, ns=(time.time_ns(), _time_of(key) + _this_boot()))
        with self._alone():
            new.unlink(missing_ok=True)
            _link(written, new, size)
            new.chmod(0o444)
            new.replace(file)

    def settle(self, keys: Sequence[str]) -> None:
        """The disk is to have these files; nobody waits for that"""
        threading.Thread(target=self._settle, args=(keys,), name="kushi-settle", daemon=True).start()

    def make_room(self, wanted: int) -> None:
        """For so many bytes more: files that no engine uses go, those first that were used least lately"""
        with self._counting:
            # others may have taken as much since it was counted
            if 2 * wanted <= self._room:
                self._room -= 2 * wanted
                return
            self._room = 0
            self._count(wanted)

    def _count(self, wanted: int) -> None:
        with self._alone():
            files = [(entry, entry.stat()) for entry in os.scandir(self.directory / "files") if entry.is_file()]
            held = sum(found.st_size for _, found in files)
            free = shutil.disk_usage(self.directory).free
            unused = sum(found.st_size for _, found in files if found.st_nlink == 1)
            if wanted > free + unused:
                raise ConfigInvalid(
                    f"there is no room for {wanted} bytes in '{self.directory}', which has {free + unused}: make room; "
                    f"{_ELSEWHERE}"
                )
            for entry, found in sorted(files, key=lambda file: file[1].st_atime_ns):
                if held + wanted <= self._most_bytes and wanted <= free:
                    break
                if found.st_nlink == 1:
                    Path(entry.path).unlink(missing_ok=True)
                    held, free = held - found.st_size, free + found.st_size
        self._room = max(0, min(self._most_bytes - held, free) - wanted)
        if held + wanted > self._most_bytes:
            _LOG.warning(
                "'%s' grows to %d bytes, more than %d (--bucket-cache-bytes): all of it is in use",
                self.directory,
                held + wanted,
                self._most_bytes,
            )

    @contextmanager
    def fetching(self, key: str, what: str) -> Iterator[None]:
        """The time in which no other server here fetches the same, which the log calls `what`"""
        byte = int(key[:15], 16)
        with (self.directory / "fetching").open("a") as lock:
            since, says = time.monotonic(), True
            while not _is_held(lock.fileno(), byte):
                check_wanted()
                time.sleep(_LOOK_SECONDS)
                if says and time.monotonic() - since > _SAYS_SECONDS:
                    _LOG.info("'%s' is being fetched by another server of this machine, which is waited for", what)
                    says = False
            try:
                yield
            finally:
                _lock_byte(lock.fileno(), byte, fcntl.F_UNLCK)

    def listing(self, repository: str) -> str:
        """What was listed of it last; "" where nothing was"""
        try:
            return self._listing(repository).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return ""

    def keep_listing(self, repository: str, text: str) -> None:
        """For a start at which the store cannot be reached"""
        place = self._listing(repository)
        new = place.with_name(f"{place.name}.{os.getpid()}.{time.monotonic_ns()}")
        try:
            new.write_text(text, encoding="utf-8", errors="surrogateescape")
            new.replace(place)
        except OSError as error:
            _LOG.warning("what was listed of '%s' cannot be kept: %s", repository, error)
            with suppress(OSError):
                new.unlink()

    def _listing(self, repository: str) -> Path:
        return self.directory / "listings" / f"{_hash(repository)}.json"

    def file(self, key: str) -> Path:
        """Where it lies, if it is there"""
        return self.directory / "files" / key

    def _settle(self, keys: Sequence[str]) -> None:
        for key in keys:
            # it may have gone again
            with suppress(OSError), self.file(key).open("rb") as file:
                os.fdatasync(file.fileno())
                found = os.fstat(file.fileno())
                # one that somebody has written to meanwhile stays so
                if found.st_mtime_ns == _time_of(key) + _this_boot():
                    os.utime(file.fileno(), ns=(found.st_atime_ns, _time_of(key)))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """The time in which no other process changes which files there are"""
        with (self.directory / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                # a child that was forked meanwhile has it open as well
                fcntl.flock(lock, fcntl.LOCK_UN)

    def _forget_the_dead(self) -> None:
        """What engines have left that came to no end of their own"""
        with self._alone():
            for lock in (self.directory / "served").glob("*.lock"):
                with lock.open("a") as file:
                    if _is_locked(file.fileno()):
                        shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                        lock.unlink(missing_ok=True)


class Served:
    """The models of one engine. They go when nobody refers to this any more, and at the end of the process"""

    def __init__(self, cache: Cache, path: Path, held: int) -> None:
        self.cache, self.path = cache, path
        self.new = path / "new"
        """For files by their keys, until they are placed: what lies there does not go from the cache"""
        self.new.mkdir()
        self.is_open = True
        self._end = weakref.finalize(self, _end, os.getpid(), path, held)

    def check_open(self) -> None:
        """Raises where it was closed; makes again what somebody has deleted"""
        if not self.is_open:
            raise ShuttingDown("the engine is closed")
        self.cache.make()
        self.new.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        self.is_open = False
        self._end()


def _end(process: int, path: Path, held: int) -> None:
    if os.getpid() != process:
        return
    shutil.rmtree(path, ignore_errors=True)
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    os.close(held)


def _hold(lock: Path) -> int:
    held = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    return held


def _is_locked(file: int) -> bool:
    """Whether this process has the lock now"""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_held(file: int, byte: int) -> bool:
    """Whether this open file has the lock of that byte now"""
    try:
        _lock_byte(file, byte, fcntl.F_WRLCK)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _lock_byte(file: int, byte: int, how: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", how, os.SEEK_SET, byte, 1, 0))


def _link(file: Path, new: Path, size: int) -> None:
    if size > _COPIED:
        try:
            os.link(file, new)
        except FileNotFoundError:
            raise
        except OSError:
            # a file system without links, or with no more of them for this file
            pass
        else:
            return
    shutil.copyfile(file, new)
    found = file.stat()
    os.utime(new, ns=(found.st_atime_ns, found.st_mtime_ns))


def is_same(placed: Path, ready: Path) -> bool:
    """Whether a file that was placed is still what lies ready: small files are the model's own"""
    try:
        found, other = placed.stat(), ready.stat()
    except OSError:
        return False
    return other.st_size <= _COPIED or os.path.samestat(found, other)


def _is_its_own(file: Path, key: str, size: int) -> bool:
    try:
        found = file.stat()
    except OSError:
        return False
    times = {_time_of(key), _time_of(key) + _this_boot()}
    return found.st_size == size and found.st_mtime_ns in times


def _time_of(key: str) -> int:
    """A time that only this content has, in nanoseconds: compiled Python, for one, is known by it"""
    return (_FIRST_TIME + int(key[:15], 16) % _TIMES) * _SECOND_NS


@cache
def _this_boot() -> int:
    """Less than a second, which is another one each time that the machine starts"""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        boot = str(os.getpid())
    # whole milliseconds, which file systems keep
    return (1 + int(_hash(boot)[:15], 16) % 999) * 1_000_000


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()
