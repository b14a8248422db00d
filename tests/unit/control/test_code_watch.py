"""When the code of a model counts as changed"""

import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextvars import copy_context
from pathlib import Path

import pytest

from runners import ModelUnavailable
from runners.control import code_watch
from runners.control.code_watch import CodeWatch
from runners.control.load import Loads
from runners.control.watched import Watched
from runners.repository import contents
from runners.repository.layout import ModelSource
from runners.wanted import work_for


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "m" / "1" / "model.py"
    file.parent.mkdir(parents=True)
    file.write_text("a")
    return file


def source(model: Path) -> ModelSource:
    return ModelSource("m", model.parents[1], {1: model.parent})


def watched(model: Path) -> Watched:
    return Watched(model.parents[1], suffix=".py")


def changed(files: Watched) -> str:
    return next(iter(files.changes()), "")


def test_a_file_counts_once_it_stands_still(model: Path) -> None:
    files = watched(model)
    assert not changed(files)
    for text in ("half", "half and more"):
        model.write_text(text)
        assert not changed(files)
    assert changed(files) == str(model)
    assert not changed(files)


def test_a_file_that_is_gone_or_new_or_replaced_has_changed(model: Path) -> None:
    files = watched(model)
    model.unlink()
    new = model.with_name("new.py")
    new.write_text("b")
    assert [changed(files), changed(files)] == ["", str(model)]
    # as editors do it
    new.with_name("temporary").write_text("c")
    new.with_name("temporary").rename(new)
    assert [changed(files), changed(files)] == ["", str(new)]


def test_what_could_not_be_dealt_with_counts_again(model: Path) -> None:
    files = watched(model)
    model.write_text("changed")
    assert [bool(changed(files)) for _ in range(2)] == [False, True]
    files.forget()
    assert changed(files) == str(model)


@pytest.mark.parametrize(
    "name",
    ["1/__pycache__/model.py", ".git/hook.py", "env/lib/site.py", "conda/bin/x.py", "1/notes.txt", "1/.#model.py"],
)
def test_what_is_no_code_of_the_model_does_not_count(model: Path, name: str) -> None:
    top = model.parents[1]
    (top / "env" / "lib").mkdir(parents=True)
    (top / "env" / "pyvenv.cfg").touch()
    (top / "conda" / "conda-meta").mkdir(parents=True)
    files = watched(model)
    (top / name).parent.mkdir(parents=True, exist_ok=True)
    (top / name).write_text("x")
    assert [changed(files), changed(files)] == ["", ""]


def test_so_many_files_and_directories_are_looked_at(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # CodeWatch sets it
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for number in range(30):
        (model.parent / str(number)).mkdir()
        (model.parent / str(number) / "code.py").touch()
    looked: list[str] = []
    scandir = os.scandir

    def counted(directory: str) -> Iterator[os.DirEntry[str]]:
        looked.append(directory)
        return scandir(directory)

    monkeypatch.setattr(os, "scandir", counted)
    monkeypatch.setattr(contents, "MOST", 63)
    # each counts once: 32 directories, 31 files
    CodeWatch().watch(Loads(0).begin("m"), source(model), "python")
    assert not caplog.text
    looked.clear()
    monkeypatch.setattr(contents, "MOST", 20)
    monkeypatch.setattr(code_watch, "MOST", 20)
    CodeWatch().watch(Loads(0).begin("m"), source(model), "python")
    assert len(looked) < 20
    assert "'m': of its files and directories, 20 are watched, and no others" in caplog.text


def test_a_load_that_was_given_up_looks_no_further(model: Path) -> None:
    def look() -> None:
        step: Future[None] = Future()
        step.cancel()
        work_for(step)
        with pytest.raises(ModelUnavailable, match="the load was given up"):
            watched(model)

    copy_context().run(look)


def test_files_are_looked_for_in_the_time_of_the_load(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    load = Loads(0).begin("m")
    load.give_up(ModelUnavailable("it is to be unloaded"))
    with pytest.raises(ModelUnavailable, match="it is to be unloaded"):
        CodeWatch().watch(load, source(model), "python")
