"""A process imports the files of its model as they were when it was loaded, whatever lies there by now"""

from __future__ import annotations

import importlib.machinery
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runners.backends.python.sources import Sources, packed, sources
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

HELD = {"1/model.py": "", "1/helper.py": "VALUE = 1", "1/package/__init__.py": "", "1/package/inner.py": "VALUE = 2"}
HELD |= {"shared/part.py": "VALUE = 3"}
PROGRAM = """
import sys
from kept_sources import keep
packed, version, model, *names = sys.argv[1:]
sys.path[:0] = [version, model]
keep(packed)
for name in names:
    try:
        print(getattr(__import__(name, fromlist=["VALUE"]), "VALUE", "no VALUE"))
    except ImportError as error:
        print(error)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    for name, text in HELD.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


def kept(model: Path) -> Sources:
    return sources(model / "1" / "model.py", model)


def imported(found: Sources, model: Path, *names: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, packed(found), str(model / "1"), str(model), *names]
    worker = ROOT / "runners" / "worker"
    done = subprocess.run(command, cwd=worker, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def package_in_its_place(model: Path) -> None:
    (model / "1/helper").mkdir()
    (model / "1/helper/__init__.py").write_text("VALUE = 9")


def without_files(model: Path) -> None:
    for name in HELD:
        (model / name).unlink()


CHANGES: dict[str, Callable[[Path], object]] = {
    "none": lambda _model: None,
    "edited": lambda model: [path.write_text("VALUE = 9") for path in model.rglob("*.py")],
    "a package in the place of a file": package_in_its_place,
    "files are gone": without_files,
    "the version is gone": lambda model: shutil.rmtree(model / "1"),
    "the version has another number": lambda model: (model / "1").rename(model / "2"),
    "the model is gone": shutil.rmtree,
}


@pytest.mark.parametrize("change", CHANGES)
def test_files_are_imported_as_they_were(model: Path, change: str) -> None:
    found = kept(model)
    CHANGES[change](model)
    assert imported(found, model, "helper", "package.inner", "shared.part") == ["1", "2", "3"]


def test_a_file_that_is_new_is_not_imported(model: Path) -> None:
    found = kept(model)
    for name in ("colorsys", "late", "package/late"):
        (model / f"1/{name}.py").write_text("VALUE = 9")
    assert imported(found, model, "late", "package.late") == [
        "No module named 'late'",
        "No module named 'package.late'",
    ]
    assert imported(found, model, "colorsys") == ["no VALUE"], "it is that of the standard library"


def test_where_all_of_it_is_much_what_lies_there_is_imported(model: Path) -> None:
    file = str(model / "1/model.py")
    found = Sources({file: kept(model).files[file]})
    (model / "1/helper.py").write_text("VALUE = 9")
    assert imported(found, model, "helper", "shared.part") == ["9", "3"]


def test_compiled_modules_and_environments_are_found_where_they_lie(model: Path) -> None:
    found = kept(model)
    packages = model / "environment/lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    (packages / "installed.py").write_text("VALUE = 4")
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (model / f"1/compiled{suffix}").write_bytes(b"no library")
    # it is found, and cannot be loaded
    assert "compiled" in imported(found, model, "compiled")[0]
    assert "No module" not in imported(found, model, "compiled")[0]
    program = f"import sys; sys.path.insert(0, {str(packages)!r})"
    command = [sys.executable, "-c", f"{program}\n{PROGRAM}", packed(found), str(model / "1"), str(model), "installed"]
    done = subprocess.run(command, cwd=ROOT / "runners/worker", capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "4\n"


def test_what_is_linked_is_read_where_it_lies(model: Path, tmp_path: Path) -> None:
    for name in ("elsewhere/package.py", "elsewhere/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("VALUE = 5")
    (model / "1/linked").symlink_to(tmp_path / "elsewhere")
    (model / "1/dead.py").symlink_to(tmp_path / "nowhere")
    found = kept(model)
    (tmp_path / "nowhere").write_text("VALUE = 6")
    assert imported(found, model, "linked", "linked.package", "dead", "helper") == ["5", "5", "6", "1"]


def test_modules_are_listed_as_they_were(model: Path) -> None:
    found = kept(model)
    (model / "1/package/inner.py").unlink()
    (model / "1/package/late.py").write_text("")
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (model / f"1/package/compiled{suffix}").write_bytes(b"no library")
    (model / "1/names.py").write_text("VALUE = 9")
    listing = "import pkgutil, package; print([one.name for one in pkgutil.iter_modules(package.__path__)])"
    command = [sys.executable, "-c", f"{PROGRAM}\n{listing}", packed(found), str(model / "1"), str(model)]
    done = subprocess.run(command, cwd=ROOT / "runners/worker", capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "['compiled', 'inner']\n", done.stderr
