"""
Archives of environments, as conda-pack makes them: unpacked once, entry by entry, while the load is wanted.

An archive says itself how long its headers are, and what is compressed may become a million times as long. So headers
are bounded, nothing of an entry is kept, and a load that was given up reads no further.
"""

import hashlib
import lzma
import re
import subprocess
import tarfile
import zlib
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, cast

from ...environment import environment_with
from ...errors import ConfigInvalid
from ...repository.files import is_within
from ...wanted import check_wanted
from .activation import program_of, variables_of
from .command import output_of, run
from .progress import reported
from .store import made_once

__all__ = ["MOST_ENTRIES", "MOST_HEADER_BYTES", "unpacked"]

MOST_ENTRIES: Final = 1_000_000
"""An environment with everything has some 100,000"""
MOST_HEADER_BYTES: Final = 1024 * 1024
"""Of one entry, all its headers together: long names and attributes take a few thousand"""
_MOST_DIGITS: Final = 255
"""In a row: those of a name. Python's reader takes a time that grows with their square"""
_LONGEST_NAME: Final = 4096
"""No path is longer"""
_START_SECONDS: Final = 60
_PIECE_BYTES: Final = 1024 * 1024
_ATTRIBUTES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_RECORD: Final = re.compile(rb"([0-9]{1,10}) ")


class _Refused(Exception):
    """None of the errors after which Python's reader tries another kind of compression"""


_BROKEN = (
    *(_Refused, OSError, EOFError, RecursionError, ValueError, OverflowError),
    *(tarfile.TarError, zlib.error, lzma.LZMAError),
)


def unpacked(archive: Path) -> Path:
    """The directory of an archive; an archive that has changed is another one"""
    stat = archive.stat()
    name = hashlib.sha256(f"{archive.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:32]
    return made_once(name, f"the environment of '{archive}'", partial(_unpack, archive))


def _unpack(archive: Path, place: Path) -> None:
    try:
        with reported(lambda: f"unpacking '{archive}'"), archive.open("rb") as file:
            _extract(file, place)
    except _BROKEN as error:
        raise ConfigInvalid(f"'{archive}' cannot be unpacked: {error}") from error
    what = f"the environment of '{archive}'"
    script, program = place / "bin" / "conda-unpack", program_of(place)
    # what is no environment is not kept
    if program is None:
        raise ConfigInvalid(f"'{archive}' has no bin/python and is no environment")
    # makes the paths in its files those of this place
    if script.is_file():
        run([str(program), str(script)], place, what, variables=dict(variables_of(place)))
    check_wanted()
    try:
        output_of([str(program), "-c", ""], _START_SECONDS, environment_with(**dict(variables_of(place))))
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigInvalid(f"the interpreter of '{archive}' cannot be used: {error}") from error


def _extract(file: IO[bytes], place: Path) -> None:
    # older releases of 3.11 have no filters, and do what this one does not forbid
    options: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
    with _Archive.open(fileobj=cast("IO[bytes]", _Wanted(file))) as archive:
        for count, member in enumerate(iter(archive.next, None), 1):
            if count > MOST_ENTRIES:
                raise _Refused(f"it has more than {MOST_ENTRIES} entries")
            if max(len(member.name), len(member.linkname)) > _LONGEST_NAME:
                raise _Refused(f"an entry has a name of more than {_LONGEST_NAME} characters")
            if member.isdev():
                raise _Refused(f"its entry '{member.name}' is a pipe or a device")
            if member.islnk() and not is_within(place / member.linkname, place):
                raise _Refused(f"its entry '{member.name}' is a link to a file outside of it")
            if member.isdir():
                # what comes later is written into it
                member.mode |= 0o700
            archive.extract(member, place, **options)


class _Wanted:
    """A file that is read while the load is wanted"""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell
        self.seekable = file.seekable

    def read(self, size: int, /) -> bytes:
        check_wanted()
        return self._file.read(size)


class _Unpacked:
    """What an archive is before it was compressed: read and skipped in pieces, and within a bound for headers"""

    def __init__(self, file: IO[bytes]) -> None:
        self.header_left: int | None = None
        self._file = file
        self._returned = b""
        self._is_plain = isinstance(file, _Wanted)
        self.tell = file.tell

    def read(self, size: int, /) -> bytes:
        if returned := self._returned:
            self._returned = b""
            return returned
        check_wanted()
        if self.header_left is not None:
            if not 0 <= size <= self.header_left:
                raise _Refused(f"an entry has headers of more than {MOST_HEADER_BYTES} bytes")
            self.header_left -= size
        return self._file.read(size)

    def read_again(self, content: bytes) -> None:
        """The next read answers this"""
        self._returned = content

    def seek(self, offset: int, /) -> int:
        if not self._is_plain:
            if offset < self._file.tell():
                self._file.seek(0)
            # what lies between is unpacked
            while (before := self._file.tell()) + _PIECE_BYTES < offset:
                check_wanted()
                if self._file.seek(before + _PIECE_BYTES) == before:
                    break
        return self._file.seek(offset)

    def close(self) -> None:
        if not self._is_plain:
            self._file.close()


class _Entry(tarfile.TarInfo):
    """An entry whose attributes have the form that they should have before Python's reader looks for them"""

    # what each header passes, by the comments in `tarfile`: subclasses may do something else with it
    def _proc_member(self, archive: "_Archive") -> tarfile.TarInfo:
        if self.size < 0:
            raise _Refused("an entry has less than 0 bytes")
        if self.type in _ATTRIBUTES:
            content = archive.stream.read(-(-self.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)
            _check_attributes(content[: self.size])
            archive.stream.read_again(content)
            if self.type == tarfile.XGLTYPE:
                archive.add_common(self.size)
        entry: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc] # it is there in each version
        return entry


class _Archive(tarfile.TarFile):
    """A tar file that keeps none of its entries"""

    tarinfo = _Entry

    def __init__(self, name: Any, mode: Any, fileobj: IO[bytes], **options: Any) -> None:  # noqa: ANN401 - of `tarfile`
        self.stream = _Unpacked(fileobj)
        self._common_bytes = 0
        super().__init__(name, mode, cast("IO[bytes]", self.stream), **options)

    def next(self) -> tarfile.TarInfo | None:
        self.stream.header_left = MOST_HEADER_BYTES
        try:
            member = super().next()
        finally:
            self.stream.header_left = None
        self.members.clear()  # type: ignore[attr-defined] # what `getmembers` answers
        if member and member.size < 0:
            raise _Refused(f"its entry '{member.name}' has less than 0 bytes")
        return member

    def getmembers(self) -> list[tarfile.TarInfo]:
        """Is asked for where a hard link leads to, if no such file is there"""
        raise _Refused("a hard link leads to a file that does not come before it")

    def add_common(self, size: int) -> None:
        """Attributes of all entries that follow, which are kept"""
        self._common_bytes += size
        if self._common_bytes > MOST_HEADER_BYTES:
            raise _Refused(f"the attributes of all entries have more than {MOST_HEADER_BYTES} bytes")


def _check_attributes(content: bytes) -> None:
    """They are records, each with its length in front, a name, a value and a line's end"""
    at = 0
    while at < len(content) and content[at]:
        stated = _RECORD.match(content, at)
        end = at + int(stated[1]) if stated else 0
        if not stated or content[end - 1 : end] != b"\n" or content.find(b"=", stated.end(), end) < 0:
            raise _Refused("the attributes of an entry are damaged")
        at = end
    if max(map(len, re.findall(rb"[0-9]+", content)), default=0) > _MOST_DIGITS:
        raise _Refused(f"the attributes of an entry have more than {_MOST_DIGITS} digits in a row")
