"""What `.ci/test-gpu` does on the machine that it runs on: here with a Python that only says what it is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """In a working tree that has the script, a kit, and the tests that are there already."""
    for name in (".ci", "kit", "tests/gpu", "tests/torch"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / ".ci/test-gpu", folder / ".ci")
    (folder / "kit/one.whl").touch()
    python = folder / "python"
    python.write_text('#!/bin/sh\necho "asked: $*"\n')
    python.chmod(0o755)
    variables = {**os.environ, "PYTHON": str(python), "KIT": "kit"}
    return subprocess.run([folder / ".ci/test-gpu"], env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("text", ["", "pytestmark = pytest.mark.slow\n"])
def test_without_a_test_for_gpus_it_stops_and_runs_no_others(tmp_path: Path, text: str) -> None:
    (tmp_path / "tests/torch").mkdir(parents=True)
    (tmp_path / "tests/torch/test_one.py").write_text(text)
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (1, "test-gpu finds no test marked gpu in tests/gpu and tests/torch\n")
    assert "pytest" not in done.stdout


def test_it_runs_the_files_that_have_tests_for_gpus(tmp_path: Path) -> None:
    (tmp_path / "tests/torch").mkdir(parents=True)
    (tmp_path / "tests/torch/test_one.py").write_text("pytestmark = pytest.mark.gpu\n")
    (tmp_path / "tests/torch/test_two.py").write_text("")
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("--numprocesses 4 tests/torch/test_one.py")
