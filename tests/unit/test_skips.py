"""The list of what a run could not show."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TESTS: Final = """
import pytest

@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.skip(reason="needs a\\n  spare moon")
def test_tides(number):
    pass

def test_runs():
    pass

@pytest.fixture
def sun():
    pytest.skip("it is night")

def test_light(sun):
    pass
"""
WHOLE: Final = "import pytest\npytest.importorskip('no_such_package', reason='there is no such package')\n"


def test_what_a_run_skips_is_listed_by_name_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "conftest.py").write_text("from tests.skips import pytest_terminal_summary\n")
    (folder / "test_sky.py").write_text(TESTS)
    (folder / "test_whole.py").write_text(WHOLE)
    times = tmp_path / "times"
    times.write_text("--- setup 1.0 s\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", str(folder)]
    environment = {**os.environ, "TIMES": str(times), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert times.read_text().splitlines() == [
        "--- setup 1.0 s",
        "--- SKIPPED test_sky.py: test_light: it is night",
        "--- SKIPPED test_sky.py: test_tides (2 times): needs a spare moon",
        "--- SKIPPED test_whole.py: the whole file: there is no such package",
    ]


@pytest.mark.parametrize(
    ("code", "problem", "fails"), [(0, "rockets", False), (3, "rockets", False), (3, "Hash mismatch", True)]
)
def test_what_cannot_be_installed_is_named_with_the_reason_and_what_is_not_what_is_locked_fails(
    tmp_path: Path, code: int, problem: str, fails: bool
) -> None:
    times, log = tmp_path / "times", tmp_path / "new" / "install.log"
    command = [
        str(ROOT / ".ci" / "optional"),
        "moon",
        str(log),
        "sh",
        "-c",
        f"echo out of; echo {problem} >&2; exit {code}",
    ]
    done = subprocess.run(command, env={**os.environ, "TIMES": str(times)}, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails
    assert log.read_text() == f"out of\n{problem}\n"
    said = "" if code == 0 else f"--- MISSING moon: out of {problem} \n"
    assert (times.read_text() if times.exists() else "", done.stderr) == (said, said)


@pytest.mark.parametrize(
    ("printed", "fails"), [("test result: ok. 6 passed", False), ("test result: ok. 0 passed", True)]
)
def test_tests_that_are_gone_have_not_passed(printed: str, fails: bool) -> None:
    command = [str(ROOT / ".ci" / "some"), r"^test result: ok\. [1-9]"]
    done = subprocess.run(command, input=f"running\n{printed}\n", capture_output=True, text=True, check=False)
    assert ((done.returncode != 0), done.stdout) == (fails, f"running\n{printed}\n")
