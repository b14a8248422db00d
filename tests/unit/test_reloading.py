"""When the code of a model counts as changed"""

from pathlib import Path

import pytest

from runners.reloading import _Watched
from runners.repository.layout import ModelSource


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "m" / "1" / "model.py"
    file.parent.mkdir(parents=True)
    file.write_text("a")
    return file


def watched(model: Path) -> _Watched:
    return _Watched(ModelSource("m", model.parents[1], {1: model.parent}), ".py")


def test_a_file_counts_once_it_stands_still(model: Path) -> None:
    files = watched(model)
    assert not files.has_changed()
    for text in ("half", "half and more"):
        model.write_text(text)
        assert not files.has_changed()
    assert files.has_changed() == str(model)
    assert not files.has_changed()


def test_a_file_that_is_gone_or_new_or_replaced_has_changed(model: Path) -> None:
    files = watched(model)
    model.unlink()
    new = model.with_name("new.py")
    new.write_text("b")
    assert [files.has_changed(), files.has_changed()] == ["", str(model)]
    # as editors do it
    new.with_name("temporary").write_text("c")
    new.with_name("temporary").rename(new)
    assert [files.has_changed(), files.has_changed()] == ["", str(new)]


def test_what_could_not_be_dealt_with_counts_again(model: Path) -> None:
    files = watched(model)
    model.write_text("changed")
    assert [bool(files.has_changed()) for _ in range(2)] == [False, True]
    files.loads_again()
    assert files.has_changed() == str(model)


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
    assert [files.has_changed(), files.has_changed()] == ["", ""]
