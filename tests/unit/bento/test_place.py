"""Where the sockets lie: in a directory of one user alone, and nowhere else."""

from __future__ import annotations

import os
import socket
import stat
from typing import TYPE_CHECKING

import pytest

from runners import ConfigInvalid
from runners.bento.place import place_of, remove_left_behind

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS = "file:///tmp/bentoml-uds-1/1.sock"


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_all_processes_find_the_same_place(base: Path) -> None:
    place = place_of(ADDRESS)
    assert place == place_of(ADDRESS)
    paths = {place.local, place.http, place.grpc, place.presence, place.lifeline}
    assert {path.parent for path in paths} == {base / "kushi"}
    assert len(paths) == 5
    assert stat.S_IMODE((base / "kushi").stat().st_mode) == 0o700


def test_every_service_has_a_place_of_its_own(base: Path) -> None:
    assert place_of(ADDRESS).local != place_of(ADDRESS + "x").local


@pytest.mark.parametrize("runtime", ["", "/nowhere"])
def test_without_a_runtime_directory_it_is_one_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert place_of(ADDRESS).local.parent == tmp_path / f"kushi-{os.getuid()}"


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777, 0o720])
def test_a_directory_that_others_may_look_into_is_refused(base: Path, mode: int) -> None:
    (base / "kushi").mkdir()
    (base / "kushi").chmod(mode)
    with pytest.raises(ConfigInvalid, match="must be a directory of this user alone"):
        place_of(ADDRESS)


def test_a_directory_of_somebody_else_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place_of(ADDRESS)
    ours = os.getuid()
    monkeypatch.setattr("os.getuid", lambda: ours + 1)
    with pytest.raises(ConfigInvalid, match="must be a directory of this user alone"):
        place_of(ADDRESS)


def test_a_link_to_a_directory_is_refused(base: Path) -> None:
    (base / "elsewhere").mkdir(mode=0o700)
    (base / "kushi").symlink_to(base / "elsewhere")
    with pytest.raises(ConfigInvalid, match="must be a directory of this user alone"):
        place_of(ADDRESS)


def test_a_file_in_its_place_is_refused(base: Path) -> None:
    (base / "kushi").touch(mode=0o600)
    with pytest.raises(ConfigInvalid, match="must be a directory of this user alone"):
        place_of(ADDRESS)


def test_what_nobody_listens_to_or_reads_is_removed_once_it_is_old(base: Path) -> None:
    folder = place_of(ADDRESS).local.parent
    left, young, kept, file, unread, read = (
        folder / name for name in ("left", "young", "kept", "file", "unread", "read")
    )
    with socket.socket(socket.AF_UNIX) as listener:
        for path in (left, young):
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(path))
        listener.bind(str(kept))
        listener.listen()
        file.touch()
        for path in (unread, read):
            os.mkfifo(path)
        reader = os.open(read, os.O_RDONLY | os.O_NONBLOCK)
        for path in (left, kept, file, unread, read):
            os.utime(path, (0, 0))
        remove_left_behind()
        os.close(reader)
        assert set(folder.iterdir()) == {young, kept, file, read}
