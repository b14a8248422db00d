"""What lies in a folder, and whether it is the same later"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.repository import contents
from runners.repository.contents import Contents, is_being_written, look

OLD_NS = 10**18


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose directories have stood still for long"""
    top = tmp_path / "m"
    (top / "1").mkdir(parents=True)
    (top / "1" / "model.onnx").write_bytes(b"one")
    (top / "config.pbtxt").write_bytes(b"config")
    return top


@pytest.fixture
def certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of directories tell of each change, however late it was"""
    monkeypatch.setattr(contents, "DOUBT_NS", -(10**18))


def rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def replace(path: Path) -> None:
    """As most programs that copy do it"""
    new = path.with_name(".new")
    new.write_bytes(path.read_bytes())
    new.rename(path)


def test_what_nobody_touches_is_the_same_object(folder: Path) -> None:
    seen = look(folder)
    assert seen.again() is seen
    assert not seen.differences(seen)


@pytest.mark.parametrize("touch", [os.utime, rewrite, replace])
def test_the_same_bytes_are_no_difference_once_they_have_been_read(folder: Path, touch: Callable[[Path], None]) -> None:
    unread, read = look(folder), look(folder)
    read.read_some(100)
    touch(folder / "1" / "model.onnx")
    again = read.again()
    assert again is not read
    assert not again.differences(read)
    assert again.differences(unread) == ["1/model.onnx"], "nobody knows what was in it"


def test_other_bytes_of_one_length_and_one_time_are_a_difference(folder: Path) -> None:
    model = folder / "1" / "model.onnx"
    os.utime(model, ns=(OLD_NS, OLD_NS))
    seen = look(folder)
    seen.read_some(100)
    model.write_bytes(b"two")
    os.utime(model, ns=(OLD_NS, OLD_NS))
    assert seen.again().differences(seen) == ["1/model.onnx"]


def test_files_and_directories_that_come_and_go_are_differences(folder: Path) -> None:
    seen = look(folder)
    (folder / "2").mkdir()
    (folder / "labels.txt").touch()
    (folder / "config.pbtxt").unlink()
    assert seen.again().differences(seen) == ["2", "config.pbtxt", "labels.txt"]


@pytest.mark.usefixtures("certain")
def test_a_folder_that_stands_still_is_not_listed_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = look(folder)
    monkeypatch.setattr(os, "scandir", lambda _: pytest.fail("it is listed"))
    assert seen.again() is seen


def test_a_change_in_the_instant_of_a_look_is_seen_by_the_next_one(folder: Path) -> None:
    seen = look(folder)
    stamp = folder.stat().st_mtime_ns
    (folder / "new").touch()
    # as a clock that ticks seldom leaves it
    os.utime(folder, ns=(stamp, stamp))
    assert seen.again().differences(seen) == ["new"]


def test_so_many_bytes_are_read_at_once(folder: Path) -> None:
    seen = look(folder)
    # the file that is begun is read to its end
    assert seen.read_some(1) == 1 - len(b"config")
    assert [bool(file.digest) for file in seen.files.values()] == [True, False]
    assert seen.read_some(100) == 100 - len(b"one")
    assert seen.read_some(100) == 100


def test_a_file_that_cannot_be_read_is_a_difference_when_it_was_touched(folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    seen = look(folder)
    seen.read_some(100)
    os.utime(pipe)
    assert seen.again().differences(seen) == ["pipe"]


def test_links_are_followed_and_in_no_circle(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "deep").mkdir(parents=True)
    (elsewhere / "model.onnx").touch()
    (folder / "2").symlink_to(elsewhere)
    (folder / "nowhere").symlink_to(tmp_path / "gone")
    (folder / "1" / "saved").symlink_to(elsewhere)
    (elsewhere / "deep" / "up").symlink_to(folder)
    (elsewhere / "deep" / "round").symlink_to(elsewhere)
    (elsewhere / "deep" / "weights").symlink_to(elsewhere / "model.onnx")
    (folder / "self").symlink_to(folder)
    found = look(folder)
    assert sorted(found.directories) == ["", "1", "1/saved", "1/saved/deep", "2", "2/deep"]
    assert {Path(path).name for path in found.files} == {"config.pbtxt", "model.onnx", "weights"}
    (elsewhere / "model.onnx").write_bytes(b"new")
    names = [f"{at}/{name}" for at in ("1/saved", "2") for name in ("deep/weights", "model.onnx")]
    assert found.again().differences(found) == names


def test_a_link_that_leads_elsewhere_now_is_a_change(folder: Path, tmp_path: Path) -> None:
    """As a mounted ConfigMap changes"""
    for number, text in ((1, "old"), (2, "new")):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "config.pbtxt").write_text(text)
    current = tmp_path / "current"
    current.symlink_to("..1")
    (folder / "config.pbtxt").unlink()
    (folder / "config.pbtxt").symlink_to(current / "config.pbtxt")
    seen = look(folder)
    (tmp_path / "next").symlink_to("..2")
    (tmp_path / "next").rename(current)
    assert seen.again().differences(seen) == ["config.pbtxt"]


def test_a_single_file_is_looked_at_as_well(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"one")
    seen = look(file)
    assert list(seen.files) == [""]
    file.write_bytes(b"another")
    assert seen.again().differences(seen) == [""]
    assert seen.path("") == str(file)


def test_what_is_not_there_has_no_contents(tmp_path: Path) -> None:
    gone = look(tmp_path / "gone")
    assert (gone.files, gone.directories) == ({}, {})
    assert not gone.differences(Contents(tmp_path / "gone", ""))


def test_who_writes_to_a_file_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.touch()
    assert not is_being_written(str(path))
    with path.open("ab"):
        assert is_being_written(str(path))
    with path.open("rb"):
        assert not is_being_written(str(path))


def test_a_file_system_of_another_machine_cannot_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb"):
        monkeypatch.setattr(contents, "_LOCAL", frozenset({"nfs4"}))
        assert not is_being_written(str(path))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda _: None])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "it")
    assert not is_being_written(str(tmp_path / "it"))


def test_reading_ends_when_nobody_wants_it_any_more(folder: Path) -> None:
    seen = look(folder)
    assert seen.read_some(100, lambda: False) == 100
    assert not any(file.digest for file in seen.files.values())


def test_a_folder_that_was_away_at_a_look_is_looked_at_again(folder: Path, certain: None) -> None:
    folder.rename(folder.with_name("away"))
    away = look(folder)
    assert away.again() is away
    folder.with_name("away").rename(folder)
    assert "1/model.onnx" in away.again().files


@pytest.mark.parametrize("hidden", ["1", "1/model.onnx"])
def test_what_could_not_be_looked_at_is_looked_at_again(
    folder: Path, certain: None, hidden: str, tmp_path: Path
) -> None:
    path, elsewhere = folder / hidden, tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    whole = look(folder)
    elsewhere.rename(tmp_path / "away")
    less = whole.again()
    assert less.differences(whole)
    (tmp_path / "away").rename(elsewhere)
    assert less.again().differences(less)


def test_two_names_of_one_directory_are_two(folder: Path) -> None:
    (folder / "3").symlink_to("1")
    seen = look(folder)
    (folder / "1" / "model.onnx").write_bytes(b"other")
    assert seen.again().differences(seen) == ["1/model.onnx", "3/model.onnx"]


def test_a_file_that_is_too_large_is_a_difference_when_it_was_touched(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "MOST_COMPARED", 4)
    seen = look(folder)
    seen.read_some(100)
    for path in ("1/model.onnx", "config.pbtxt"):
        os.utime(folder / path)
    assert seen.again().differences(seen) == ["config.pbtxt"]
