"""Which Python files of a model are kept as they were loaded: all of them, or its own file alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runners.backends.python import sources as module
from runners.backends.python.sources import Sources, sources

if TYPE_CHECKING:
    from pathlib import Path


LEFT = ("2/model.py", ".hidden/a.py", "1/weights.bin", "environment/pyvenv.cfg", "environment/lib/a.py")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """That of version 1 of a model, with others beside it and in its directory"""
    for name in ("1/model.py", "1/helper.py", "package/inner.py", *LEFT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path / "1" / "model.py"


def named(file: Path) -> list[str]:
    directory = file.parent.parent
    found = sources(file, directory).files
    names = [path.removeprefix(f"{directory}/") for path in found]
    assert [text.encode("latin-1").decode() for text in found.values()] == names
    return names


def test_what_can_be_imported_is_kept_and_nothing_else(file: Path) -> None:
    assert named(file) == ["1/model.py", "1/helper.py", "package/inner.py"]
    assert sources(file, file.parent.parent).directories == [str(file.parent), str(file.parent.parent)]


@pytest.mark.parametrize(("bound", "most"), [("_MOST_FILES", 2), ("_MOST_ENTRIES", 4), ("_MOST_BYTES", 20)])
def test_of_much_the_file_of_the_model_is_kept_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    """Never some of it: files of two loads do not go together"""
    monkeypatch.setattr(module, bound, most)
    assert named(file) == ["1/model.py"]
    assert not sources(file, file.parent.parent).directories


def test_a_file_that_cannot_be_read_is_for_whoever_imports_it(file: Path) -> None:
    (file.parent / "helper.py").unlink()
    (file.parent / "helper.py").symlink_to("nowhere")
    assert named(file) == ["1/model.py", "package/inner.py"]
    file.unlink()
    assert sources(file, file.parent.parent) == Sources({})
