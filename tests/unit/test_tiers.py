"""Planted faults are red at the first look in every tier; lateness alone is looked at again, where it may be."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.run.order import seed_of_tree
from tests.run.tiers import TIERS
from tests.serving import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FAULTS: Final = "tests/planted/test_faults.py"
WRONG: Final = [
    "test_wrong_once",
    "test_late_and_wrong",
    "test_timed_out_once",
    "test_hangs_once",
    "test_crashes_once",
    "test_ends_its_process_once",
]


def run(folder: Path, tier: str, *tests: str, processes: int = 0) -> subprocess.CompletedProcess[str]:
    """As a part of a whole run does; tests of that file, or paths"""
    chosen = [test if "/" in test else f"{FAULTS}::{test}" for test in tests]
    kept = {"SECOND_LOOKS": str(folder / "looks"), "PLANTED": str(folder), "RECORD": str(folder / "ci"), "PART": "p"}
    options = ["--tier", tier, "--numprocesses", str(processes), "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *chosen, *options],
        cwd=ROOT,
        env={**os.environ, **kept},
        capture_output=True,
        text=True,
        check=False,
    )


def looks(folder: Path) -> list[dict[str, object]]:
    path = folder / "looks"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("tier", TIERS)
def test_what_is_wrong_once_is_red(tmp_path: Path, tier: str) -> None:
    # of each process that dies another one goes on
    done = run(tmp_path, tier, *WRONG, processes=1)
    assert done.returncode == 1, done.stdout
    # of one the call has failed, and its end too
    assert "6 failed, 1 error" in done.stdout
    assert all(f"{FAULTS}::{fault}[{tier}]" in done.stdout for fault in WRONG)
    assert looks(tmp_path) == []


def test_lateness_is_red_where_no_clock_runs(tmp_path: Path) -> None:
    assert run(tmp_path, "plain", "test_late_once").returncode == 1
    assert looks(tmp_path) == []


@pytest.mark.parametrize(("tier", "processes"), [("clock", 1), ("alone", 0)])
def test_lateness_is_looked_at_again_and_shown(tmp_path: Path, tier: str, processes: int) -> None:
    done = run(tmp_path, tier, "test_late_once", processes=processes)
    assert done.returncode == 0, done.stdout
    assert "second looks: mend these before you go on" in done.stdout
    (look,) = looks(tmp_path)
    assert (look["test"], look["right"]) == (f"{FAULTS}::test_late_once[{tier}]", True)
    assert "the moon rises" in str(look["late"])


def test_what_is_late_again_alone_is_red(tmp_path: Path) -> None:
    done = run(tmp_path, "clock", "test_late_always")
    assert done.returncode == 1
    assert [look["right"] for look in looks(tmp_path)] == [False]


def test_what_waits_for_a_server_that_has_died_is_not_late(tmp_path: Path) -> None:
    assert run(tmp_path, "clock", "test_late_beside_a_server_that_died").returncode == 1
    assert looks(tmp_path) == []


def test_lateness_beside_a_wrong_test_is_not_looked_at_again(tmp_path: Path) -> None:
    assert run(tmp_path, "clock", "test_late_always", "test_wrong_once").returncode == 1
    assert looks(tmp_path) == []


def test_three_that_are_late_are_red_at_once(tmp_path: Path) -> None:
    done = run(tmp_path, "clock", "test_late_always", "test_late_always_too", "test_late_once_more")
    assert done.returncode == 1
    assert "3 tests were late: no more than 2 of a run are asked again" in done.stdout
    assert looks(tmp_path) == []


def test_a_run_has_two_second_looks_over_all_its_parts(tmp_path: Path) -> None:
    earlier = "".join(json.dumps({"test": name, "late": "", "right": True}) + "\n" for name in ("one", "two"))
    (tmp_path / "looks").write_text(earlier)
    assert run(tmp_path, "clock", "test_late_once").returncode == 1


def test_nothing_is_asked_again_where_nobody_keeps_count(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", f"{FAULTS}::test_late_once", "--tier", "clock", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PLANTED": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1


CROSSED: Final = {
    "plain": {
        "test_sleeps": "time.sleep in test_faults.py",
        "test_sleeps_in_a_thread": "time.sleep in test_faults.py",
        "test_loads_a_library": "ctypes.CDLL('libm.so.6')",
        "test_counts_descriptors": "reads /proc/…/fd",
        "test_reads_memory": "reads the memory of a process",
    },
    "clock": {
        "test_limits_itself": "resource.setrlimit",
        "test_pins_itself": "os.sched_setaffinity",
    },
}


@pytest.mark.parametrize("tier", CROSSED)
def test_what_is_not_of_its_tier_fails_by_name(tmp_path: Path, tier: str) -> None:
    done = run(tmp_path, tier, *CROSSED[tier])
    assert done.returncode == 1
    for test, told in CROSSED[tier].items():
        assert f"ERROR {FAULTS}::{test}" in done.stdout
        assert f"a test of the tier {tier} does what is not of it: {told}" in done.stdout


def test_the_strictest_tier_may_do_it_and_a_run_keeps_its_results_and_the_order(tmp_path: Path) -> None:
    done = run(tmp_path, "alone", "test_may_do_all_of_it", processes=1)
    assert done.returncode == 0, done.stdout
    assert f"--randomly-seed={seed_of_tree()}" in done.stdout
    assert "test_may_do_all_of_it" in (tmp_path / "ci/junit/p.xml").read_text()
    assert (tmp_path / "ci/order/p-gw0.txt").read_text() == f"{FAULTS}::test_may_do_all_of_it\n"


def test_a_mark_that_does_not_stand_in_the_file_of_its_test_is_red(tmp_path: Path) -> None:
    done = run(tmp_path, "plain", "tests/planted/test_marked_elsewhere.py", processes=1)
    assert done.returncode not in {0, 5}
    told = "test_of_real_time is of the tier clock, and nothing in its file says mark.clock"
    assert told in done.stdout + done.stderr


@pytest.mark.parametrize(("tier", "code"), [("plain", 2), ("clock", 5), ("alone", 2), ("scheduled", 5)])
def test_a_file_without_the_mark_of_a_tier_is_not_read_for_it(tmp_path: Path, tier: str, code: int) -> None:
    done = run(tmp_path, tier, "tests/planted/unreadable")
    assert done.returncode == code, done.stdout
    assert ("somebody has read it" in done.stdout) == (code == 2)


def test_the_marks_of_files_are_statements() -> None:
    """In a docstring one would mark nothing"""
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^pytestmark\b", text, re.MULTILINE):
            targets = [node.targets for node in ast.parse(text).body if isinstance(node, ast.Assign)]
            assert "pytestmark" in [getattr(target, "id", "") for one in targets for target in one], path
