"""Zip files of a model: tables of contents that are larger than any are not read, and records come in pieces."""

from __future__ import annotations

import io
import struct
from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_LZMA, ZIP_STORED, ZipFile

import pytest

from runners import ConfigInvalid, ModelUnavailable, zip_files
from runners.wanted import work_for
from runners.zip_files import MOST_TABLE_BYTES, opened_zip, read_record, wrong_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TABLE_BYTES = 8 * 1024 * 1024 * 1024


class Watched(io.BytesIO):
    """Says how much was asked of it in one piece"""

    longest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.longest = max(self.longest, self.getbuffer().nbytes if size is None or size < 0 else size)
        return super().read(size)


def packed(content: bytes, compression: int = ZIP_STORED) -> Watched:
    file = Watched()
    with ZipFile(file, "w", compression) as archive:
        archive.writestr("one", content)
        archive.writestr("two", b"")
    file.longest = 0
    return file


def test_a_table_of_contents_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        # all of it is a hole
        file.seek(TABLE_BYTES)
        file.write(struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, TABLE_BYTES, 0))
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, TABLE_BYTES, 1))
        file.write(struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, 0xFFFFFFFF, 0xFFFFFFFF, 0))
    expected = f"^'large' has a table of contents of more than {MOST_TABLE_BYTES} bytes$"
    with pytest.raises(ConfigInvalid, match=expected), path.open("rb") as large, opened_zip(large, "'large'"):
        pass


def test_more_records_than_any_model_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_files, "MOST_RECORDS", 2)
    with opened_zip(packed(b"1"), "'many'") as archive:
        assert archive.namelist() == ["one", "two"]
    monkeypatch.setattr(zip_files, "MOST_RECORDS", 1)
    with (
        pytest.raises(ConfigInvalid, match=r"^'many' has 2 records, expected at most 1$"),
        opened_zip(packed(b"1"), "'many'"),
    ):
        pass


@pytest.mark.parametrize("compression", [ZIP_BZIP2, ZIP_LZMA])
def test_records_that_python_unpacks_whole_are_refused(compression: int) -> None:
    with (
        pytest.raises(ConfigInvalid, match=r"^'odd' has 'one' compressed by another method than deflate$"),
        opened_zip(packed(b"1", compression), "'odd'"),
    ):
        pass


@pytest.mark.parametrize("compression", [ZIP_STORED, ZIP_DEFLATED])
def test_a_record_is_read_in_pieces(compression: int) -> None:
    content = bytes(range(256)) * 16384
    file = packed(content, compression)
    with opened_zip(file, "'some'") as archive:
        file.longest = 0
        assert read_record(archive, "one") == content
        assert read_record(archive, "two") == b""
    assert file.longest <= 1024 * 1024


def test_a_load_that_was_given_up_reads_no_further() -> None:
    content = bytes(4 * 1024 * 1024)

    def reading(read: Callable[[ZipFile], object], whole: object) -> None:
        step: Future[None] = Future()
        work_for(step)
        file = packed(content)
        with opened_zip(file, "'some'") as archive:
            assert read(archive) == whole
            step.cancel()
            with pytest.raises(ModelUnavailable, match="the load was given up"):
                read(archive)
            assert file.tell() < 2 * 1024 * 1024

    copy_context().run(reading, wrong_record, None)
    copy_context().run(reading, lambda archive: read_record(archive, "one"), content)
