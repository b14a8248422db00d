"""A whole run fails late, and says at its end all that went wrong, by name."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.processes import lives
from tests.serving import ROOT
from tests.waiting import eventually
from tests.whole.parts import PARTS
from tests.whole.reading import read_junit, read_log

MAKEFILE: Final = """
test: setup lint test-tensorrt test-rust ## Everything
setup: ; @true
lint: ; @echo a line that is wrong >&2; exit 3
test-tensorrt: ; @"$(PYTHON)" -m pytest -p no:randomly --junitxml=$(RECORD)/junit/test-tensorrt.xml sky.py
test-rust: ; @cat cargo; exit 101
slow: ; @echo $$$$ >pid; exec sleep 600
"""
TESTS: Final = """
def test_right():
    pass

def test_wrong():
    assert 1 == 2, "numbers differ"
"""
CARGO: Final = """running 2 tests
test queue::tests::keeps_the_order ... ok
test queue::tests::drops_the_dead ... FAILED

failures:

---- queue::tests::drops_the_dead stdout ----

thread 'queue::tests::drops_the_dead' (77) panicked at crates/core/src/queue.rs:7:5:
assertion failed: dead
note: run with `RUST_BACKTRACE=1`

test result: FAILED. 1 passed; 1 failed; 0 ignored
"""
NEXTEST: Final = """    Starting 4 tests across 1 binary
     SIGABRT [   0.007s] (1/4) kushi-core aborts
        LEAK [   0.007s] (2/4) kushi-core queue::tests::leaves_a_pipe
        PASS [   0.007s] (3/4) kushi-core queue::tests::keeps_the_order
        FAIL [   0.110s] (4/4) kushi-core::runner queue::drops_the_dead
  stderr ───

    thread 'queue::drops_the_dead' (856) panicked at tests/queue.rs:2:20:
    assertion failed: dead

     Summary [   0.114s] 4/9 tests run: 2 passed, 2 failed, 0 skipped
     SIGABRT [   0.007s] (1/4) kushi-core aborts
        FAIL [   0.110s] (4/4) kushi-core::runner queue::drops_the_dead
error: test run failed
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository whose parts are small"""
    for name in ("__init__", "__main__", "parts", "reading", "running", "table"):
        target = tmp_path / "tests/whole" / f"{name}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests/whole" / f"{name}.py", target)
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "sky.py").write_text(TESTS)
    (tmp_path / "cargo").write_text(CARGO)
    return tmp_path


def command(*parts: str) -> list[str]:
    # with nothing but the standard library, as before the first part
    return [sys.executable, "-S", "-m", "tests.whole", *parts]


def whole(project: Path, *parts: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(command(*parts), cwd=project, env=environment, capture_output=True, text=True, check=False)


def last(project: Path) -> Any:  # noqa: ANN401 - a JSON document
    return json.loads((project / "build/ci/last.json").read_text())


def test_every_part_runs_and_all_failures_stand_at_the_end(project: Path) -> None:
    done = whole(project, "setup", "lint", "test-tensorrt", "test-rust")
    assert done.returncode == 1
    end = done.stdout[done.stdout.index("=== parts") :]
    assert "lint: its last lines\n    a line that is wrong" in end
    assert "test-tensorrt: sky.py::test_wrong\n    AssertionError: numbers differ" in end
    expected = "test-rust: queue::tests::drops_the_dead\n    crates/core/src/queue.rs:7:5: assertion failed: dead"
    assert expected in end
    assert "2 passed, 3 failed, 0 skipped\n" in end
    kept = last(project)
    assert kept["verdict"] == "red"
    assert [part["outcome"] for part in kept["parts"]] == ["passed", "failed", "failed", "failed"]
    assert kept["failures"]["test-tensorrt"] == {"sky.py::test_wrong": "AssertionError: numbers differ"}
    assert kept["machine"]["cores"] >= 1
    assert "a line that is wrong" in (project / "build/ci/logs/lint.txt").read_text()


def test_what_needs_a_part_that_failed_is_left_out_and_the_run_is_red(project: Path) -> None:
    makefile = project / "Makefile"
    makefile.write_text(makefile.read_text().replace("setup: ; @true", "setup: ; @false"))
    done = whole(project, "setup", "lint")
    assert done.returncode == 1
    assert [part["outcome"] for part in last(project)["parts"]] == ["failed", "left out: what it needs has failed"]


def test_a_test_that_was_right_when_asked_alone_is_no_failure(project: Path) -> None:
    look = {"test": "sky.py::test_wrong", "late": "the moon rises", "right": True}
    makefile = project / "Makefile"
    written = makefile.read_text().replace("sky.py", f"sky.py; echo '{json.dumps(look)}' >$$SECOND_LOOKS")
    makefile.write_text(written)
    done = whole(project, "setup", "test-tensorrt")
    assert done.returncode == 0, done.stdout
    assert "second looks: these tests were late; mend them before you go on\nsky.py::test_wrong: right" in done.stdout
    assert last(project)["verdict"] == "green, of some parts"


def test_failures_make_it_red_whatever_the_part_answers(project: Path) -> None:
    makefile = project / "Makefile"
    makefile.write_text(makefile.read_text().replace("exit 101", "exit 0"))
    done = whole(project, "setup", "test-rust")
    assert done.returncode == 1
    assert last(project)["verdict"] == "red"


def test_a_part_that_has_run_no_test_is_red(project: Path) -> None:
    makefile = project / "Makefile"
    makefile.write_text(re.sub("test-tensorrt: ;.*", "test-tensorrt: ; @true", makefile.read_text()))
    assert whole(project, "setup", "test-tensorrt").returncode == 1
    assert last(project)["failures"] == {"test-tensorrt": {"test-tensorrt.xml": "it is not there: no test has run"}}


def test_variables_that_choose_tests_are_not_those_of_a_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    monkeypatch.setenv("MAKEFLAGS", "n")
    whole(project, "setup", "test-tensorrt")
    assert list(last(project)["failures"]["test-tensorrt"]) == ["sky.py::test_wrong"]


def test_a_part_that_is_not_there_is_named(project: Path) -> None:
    done = whole(project, "test-tensorrt", "moon")
    assert done.returncode == 2
    assert "no part moon: there are environments, setup, lint, test-tensorrt" in done.stderr


def test_a_run_that_is_told_to_end_ends_what_it_has_begun(project: Path) -> None:
    parts = project / "tests/whole/parts.py"
    parts.write_text(parts.read_text().replace('"test-triton"', '"slow"'))
    with subprocess.Popen(command("slow"), cwd=project, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "\n"
        assert run.stdout.readline() == "=== slow\n"
        written = project / "pid"
        eventually(lambda: written.exists() and written.read_text().endswith("\n"), "the part has begun")
        run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 143
        began = int(written.read_text())
        eventually(lambda: not lives(began), "nothing of it is left")


@pytest.mark.parametrize("session", ["setsid ", ""], ids=["in a session of its own", "in that of the part"])
def test_what_a_part_leaves_behind_is_ended_and_named(project: Path, session: str) -> None:
    makefile = project / "Makefile"
    leaving = f"{session}sh -c 'echo $$$$ >pid; exec sleep 600' & until test -s pid; do true; done; "
    makefile.write_text(makefile.read_text().replace("lint: ; @", f"lint: ; @{leaving}"))
    done = whole(project, "setup", "lint")
    assert re.search(r"left behind, and are ended now\nlint: .*sleep 600\n", done.stdout)
    assert not lives(int((project / "pid").read_text()))


def test_a_file_that_pytest_has_not_finished_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "test-python.xml"
    path.write_text("<testsuites>")
    assert "cannot be read" in read_junit(path).failures["test-python.xml"]


def test_what_cargo_nextest_says_is_read() -> None:
    found = read_log(NEXTEST)
    assert found.passed == 2
    assert found.failures == {
        "kushi-core aborts": "SIGABRT",
        "kushi-core::runner queue::drops_the_dead": "tests/queue.rs:2:20: assertion failed: dead",
    }


def test_what_cargo_counts_is_added_up() -> None:
    found = read_log(CARGO + "\ntest result: ok. 40 passed; 0 failed; 0 ignored\n")
    assert (found.passed, list(found.failures)) == (41, ["queue::tests::drops_the_dead"])


def test_make_test_and_the_slower_targets_are_its_parts() -> None:
    names = [part.name for part in PARTS]
    assert names[:6] == ["environments", "setup", "lint", "test-rust", "test-python", "test-tensorrt"]
    targets = {line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines()}
    assert set(names) <= targets
