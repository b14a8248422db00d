"""Archives of environments: headers and entries are bounded, and a load that was given up unpacks no further."""

from __future__ import annotations

import bz2
import io
import sys
import tarfile
from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING

import pytest

from runners import ConfigInvalid, ModelUnavailable
from runners.backends.python import archive as module
from runners.backends.python.archive import MOST_HEADER_BYTES, unpacked
from runners.wanted import work_for

if TYPE_CHECKING:
    from pathlib import Path

LONG_BYTES = 64 * 1024 * 1024
OTHERS = [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK]
NO_PROGRAM = "has no bin/python and is no environment"
"""What is said of all that was unpacked, and is no environment"""
ATTRIBUTES = [tarfile.XHDTYPE, tarfile.XGLTYPE]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kushi" / "environments"


def header(kind: bytes, size: int, name: str = "a") -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT)


def file(content: bytes, name: str = "a") -> bytes:
    return header(tarfile.REGTYPE, len(content), name) + content + bytes(-len(content) % 512)


def described(content: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return header(kind, len(content)) + content + bytes(-len(content) % 512)


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "env.tar"
    path.write_bytes(content + bytes(1024))
    return path


def why(path: Path) -> str:
    with pytest.raises(ConfigInvalid) as raised:
        unpacked(path)
    text = str(raised.value)
    assert f"'{path}'" in text
    return text.removeprefix(f"'{path}' ").removeprefix("cannot be unpacked: ")


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
def test_what_is_packed_is_unpacked(tmp_path: Path, compression: str) -> None:
    place = tmp_path / "packed"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "tool").write_bytes(b"1" * 3_000_000)
    (place / "bin" / "tool").chmod(0o755)
    (place / "bin" / "same").hardlink_to(place / "bin" / "tool")
    (place / "bin" / ("long" * 50)).symlink_to("tool")
    (place / "bin" / "python").symlink_to(sys.executable)
    (place / "bin").chmod(0o555)
    path = tmp_path / "env"
    with tarfile.open(path, f"w:{compression}") as made:  # type: ignore[call-overload] # one of them
        made.add(place, ".")
    (place / "bin").chmod(0o755)
    found = unpacked(path)
    assert (found / "bin" / "tool").read_bytes() == b"1" * 3_000_000
    assert (found / "bin" / "tool").stat().st_mode & 0o777 == 0o755
    assert (found / "bin" / "same").samefile(found / "bin" / "tool")
    assert (found / "bin" / ("long" * 50)).readlink().name == "tool"
    # so that it can be removed
    assert (found / "bin").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", [*OTHERS, *ATTRIBUTES])
def test_a_header_longer_than_any_is_not_read(tmp_path: Path, kind: bytes, compressed: bool) -> None:
    content = header(kind, LONG_BYTES) + bytes(LONG_BYTES)
    path = written(tmp_path, bz2.compress(content) if compressed else content)
    assert why(path) == f"an entry has headers of more than {MOST_HEADER_BYTES} bytes"


def test_headers_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HEADER_BYTES", 4096)
    half = header(tarfile.GNUTYPE_LONGNAME, 1024) + b"n" * 100 + bytes(924)
    assert why(written(tmp_path, half + file(b""))) == NO_PROGRAM
    assert why(written(tmp_path, half * 3 + file(b""))) == "an entry has headers of more than 4096 bytes"


def test_the_holes_of_a_file_are_bounded(tmp_path: Path) -> None:
    holes = bytearray(header(tarfile.GNUTYPE_SPARSE, 0))
    holes[482], holes[483:495] = 1, b"00000000000\0"
    holes[148:156] = b" " * 8
    holes[148:156] = b"%06o\0 " % sum(holes)
    more = (b"00000000001\0" * 42).ljust(504, b"\0") + b"\1" + bytes(7)
    path = written(tmp_path, bytes(holes) + more * 4096)
    assert why(path) == f"an entry has headers of more than {MOST_HEADER_BYTES} bytes"


def test_attributes_of_all_entries_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HEADER_BYTES", 2048)
    common = described(b"1000 a=" + b"v" * 992 + b"\n", tarfile.XGLTYPE) + file(b"")
    assert why(written(tmp_path, common * 2)) == NO_PROGRAM
    assert why(written(tmp_path, common * 3)) == "the attributes of all entries have more than 2048 bytes"


@pytest.mark.parametrize("content", [b"2 " * 500 + b"=\n", b"9 a=b\n", b"6 abc\n", b"0 a=b\n", b"7 a=bc9"])
def test_attributes_are_records_with_their_length(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, described(content) + file(b""))
    assert why(path) == "the attributes of an entry are damaged"


def test_attributes_have_no_number_that_python_would_read_for_hours(tmp_path: Path) -> None:
    path = written(tmp_path, described(b"1000 a=" + b"1" * 992 + b"\n") + file(b""))
    assert why(path) == "the attributes of an entry have more than 255 digits in a row"


def test_more_entries_than_any_environment_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 2)
    entries = [file(b"", name) for name in "abc"]
    assert why(written(tmp_path, b"".join(entries[:2]))) == NO_PROGRAM
    assert why(written(tmp_path, b"".join(entries))) == "it has more than 2 entries"


def test_a_name_that_is_longer_than_any_path_is_refused(tmp_path: Path) -> None:
    name = b"n/" * 2049
    path = written(tmp_path, header(tarfile.GNUTYPE_LONGNAME, len(name), "l") + name.ljust(9 * 512, b"\0") + file(b""))
    assert why(path) == "an entry has a name of more than 4096 characters"


def test_a_pipe_is_no_part_of_an_environment(tmp_path: Path) -> None:
    path = written(tmp_path, header(tarfile.FIFOTYPE, 0, "bin/python"))
    assert why(path) == "its entry 'bin/python' is a pipe or a device"


def test_a_hard_link_to_nothing_is_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("a")
    link.type, link.linkname = tarfile.LNKTYPE, "b"
    assert why(written(tmp_path, link.tobuf() + file(b"", "b"))).startswith("a hard link leads to a file that does not")


@pytest.mark.parametrize("target", ["../outside", "/etc/hostname"])
def test_a_hard_link_to_a_file_outside_is_refused(tmp_path: Path, target: str) -> None:
    link = tarfile.TarInfo("a")
    link.type, link.linkname = tarfile.LNKTYPE, target
    assert why(written(tmp_path, link.tobuf() + file(b"", "b"))) == "its entry 'a' is a link to a file outside of it"


@pytest.mark.parametrize("content", [b"", b"no program", b"#!/bin/sh\nexit 3\n"])
def test_an_environment_whose_interpreter_cannot_run_is_not_kept(tmp_path: Path, cache: Path, content: bytes) -> None:
    path = tmp_path / "env.tar"
    with tarfile.open(path, "w") as made:
        entry = tarfile.TarInfo("bin/python")
        entry.size, entry.mode = len(content), 0o755 if content else 0o644
        made.addfile(entry, io.BytesIO(content))
    assert why(path).startswith(f"the interpreter of '{path}' cannot be used: ")
    assert [one.suffix for one in cache.iterdir()] == [".lock"]


class GivenUp(Future[None]):
    """Is cancelled when it has been looked at so many times"""

    looks = 64

    def cancelled(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@pytest.mark.parametrize("compressed", [False, True])
def test_a_load_that_was_given_up_unpacks_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    content = file(bytes(LONG_BYTES)) + bytes(1024)
    path = written(tmp_path, bz2.compress(content) if compressed else content)
    # what is half unpacked is removed
    lengths: list[int] = []

    def unpack(archive: Path, place: Path) -> None:
        try:
            module._extract(io.BytesIO(archive.read_bytes()), place)
        finally:
            lengths.append(sum(one.stat().st_size for one in place.iterdir()))

    monkeypatch.setattr(module, "_unpack", unpack)

    def run() -> None:
        work_for(GivenUp())
        with pytest.raises(ModelUnavailable, match="the load was given up"):
            unpacked(path)

    copy_context().run(run)
    assert lengths[0] < 2 * 1024 * 1024
