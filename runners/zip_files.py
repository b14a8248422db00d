"""
Zip files of a model: a table of contents is read only where it is no larger than that of any model.

A zip file says itself how large that is, and a file with holes has any size. Python's reader reads it in one piece, and
finds it in another way in each version. So it is bounded where it reads, and not where the file says what it will read.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO, Final, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from .errors import ConfigInvalid
from .wanted import check_wanted

__all__ = ["MOST_RECORDS", "MOST_TABLE_BYTES", "opened_zip", "read_record", "wrong_record"]

MOST_RECORDS: Final = 200_000
"""A large model has a record for each of its weights, which are thousands; Python makes an object of each record"""
MOST_TABLE_BYTES: Final = 32 * 1024 * 1024
"""160 bytes for each record, of which 46 and its name are needed"""
_RECORD: Final = b"PK\1\2"
_PIECE_BYTES: Final = 1024 * 1024
_MOST_SHOWN: Final = 200


@contextmanager
def opened_zip(file: BinaryIO, subject: str) -> Iterator[ZipFile]:
    """The zip file in `file`, to be read; raises what Python's reader raises, or ConfigInvalid that names `subject`"""
    bounded = _Bounded(file, subject)
    with ZipFile(cast("IO[bytes]", bounded)) as archive:
        bounded.is_opening = False
        for record in archive.infolist():
            # of others Python's reader unpacks a piece whole, however much comes of it
            if record.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
                raise ConfigInvalid(
                    f"{subject} has '{record.filename[:_MOST_SHOWN]}' compressed by another method than deflate"
                )
        yield archive


def read_record(archive: ZipFile, name: str) -> bytes:
    """
    What the record `name` holds, unpacked piece by piece: no more than it states, which is to be looked at first,
    comes into memory
    """
    content = io.BytesIO()
    for piece in _pieces(archive, name):
        content.write(piece)
    return content.getvalue()


def wrong_record(archive: ZipFile) -> str | None:
    """The first record with another checksum than it states, as `testzip` finds it, while the load is wanted"""
    for name in archive.namelist():
        try:
            for _ in _pieces(archive, name):
                pass
        except BadZipFile:
            return name
    return None


def _pieces(archive: ZipFile, name: str) -> Iterator[bytes]:
    with archive.open(name) as record:
        while piece := record.read(_PIECE_BYTES):
            # a record that is a hole may be longer than any disk
            check_wanted()
            yield piece


class _Bounded:
    """A file of which no more than a table of contents is read in one piece, until it is opened"""

    def __init__(self, file: BinaryIO, subject: str) -> None:
        self.is_opening = True
        self._file = file
        self._subject = subject
        self.seek = file.seek
        self.tell = file.tell
        self.seekable = file.seekable

    def read(self, size: int = -1, /) -> bytes:
        if not self.is_opening:
            return self._file.read(size)
        most = MOST_TABLE_BYTES + 1
        content = self._file.read(most if size < 0 else min(size, most))
        if len(content) == most:
            raise ConfigInvalid(f"{self._subject} has a table of contents of more than {MOST_TABLE_BYTES} bytes")
        # each record begins so
        if (records := content.count(_RECORD)) > MOST_RECORDS:
            raise ConfigInvalid(f"{self._subject} has {records} records, expected at most {MOST_RECORDS}")
        return content
