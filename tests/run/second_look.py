"""
Lateness may be asked again, wrongness never.

A test of the tiers clock and alone that failed by `Late` and by nothing else runs once more, alone. The file that the
variable SECOND_LOOKS names has a line for each: of one run there are at most two, over all its parts. Where one more is
needed, where it is late again or fails otherwise, the run is red. Without the variable nothing is asked again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.run.tiers import ALONE, CLOCK, tier_of
from tests.serving import STARTED
from tests.waiting import Late

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MOST", "Deaths", "SecondLook", "note_lateness"]

MOST: Final = 2
LONGEST_S: Final = 600.0
VARIABLE: Final = "SECOND_LOOKS"
DIED: Final = pytest.StashKey[bool]()


def note_lateness(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Where the test is made, for the process that has all reports"""
    error = call.excinfo.value if call.excinfo else None
    # one that waits for a server that has died is not late
    died = any(server.has_died for server in STARTED)
    if report.failed and isinstance(error, Late) and not died and tier_of(item) in {CLOCK, ALONE}:
        report.late = next(iter(str(error).splitlines()), "late")  # type: ignore[attr-defined]


class Deaths:
    """
    A plugin for the process that has all reports: one that ran tests and has died is red, whatever it was at. So is an
    error in pytest itself, for which pytest-xdist would answer 0 where it was in a process that runs tests.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._stash = config.stash

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        if error:
            self._stash[DIED] = True

    def pytest_internalerror(self) -> None:
        self._stash[DIED] = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._stash.get(DIED, False) and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


class SecondLook:
    """A plugin for the process that has all reports"""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._failed: dict[str, list[pytest.TestReport]] = {}
        self._lines: list[str] = []
        self._other_failures = False

    @classmethod
    def wanted(cls) -> SecondLook | None:
        """Those that tests start are asked once"""
        named = os.environ.pop(VARIABLE, "")
        return cls(Path(named)) if named else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.setdefault(report.nodeid, []).append(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._other_failures |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus != pytest.ExitCode.TESTS_FAILED or self._other_failures:
            return
        late = {test: lateness for test, reports in self._failed.items() if (lateness := _lateness(reports))}
        if not late or len(late) < len(self._failed) or session.config.stash.get(DIED, False):
            # red whatever a second look would show
            return
        had = len(self._file.read_text(encoding="utf-8").splitlines()) if self._file.exists() else 0
        if had + len(late) > MOST:
            self._lines = [f"{had + len(late)} tests were late: no more than {MOST} of a run are asked again"]
            return
        if all(self._is_right(session.config, test, lateness) for test, lateness in late.items()):
            session.exitstatus = pytest.ExitCode.OK

    def _is_right(self, config: pytest.Config, test: str, lateness: str) -> bool:
        options = [f"--randomly-seed={config.getoption('randomly_seed', 0)}", "-p", "no:cacheprovider", "-rN"]
        options += [flag for flag in ("--gpu", "--skip-missing", "--fresh") if config.getoption(flag)]
        command = [sys.executable, "-m", "pytest", *options, f"--rootdir={config.rootpath}", test]
        with tempfile.TemporaryFile("w+") as output:
            # not through a pipe, which processes may hold that the test has left
            try:
                code = subprocess.run(
                    command, cwd=config.rootpath, stdout=output, stderr=output, timeout=LONGEST_S, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                code = -1
            output.seek(0)
            text = output.read()
        # one that is skipped has shown nothing
        right = code == 0 and re.search(r"\b1 passed in ", text) is not None
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"test": test, "late": lateness, "right": right}) + "\n")
        self._lines.append(f"{test}\n    {lateness}\n    alone it {'passed' if right else 'failed again'}")
        if not right:
            self._lines.append(text)
        return right

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._lines:
            terminalreporter.section("second looks: mend these before you go on", yellow=True)
            for line in self._lines:
                terminalreporter.line(line)


def _lateness(reports: list[pytest.TestReport]) -> str:
    """Of a test that has failed by nothing else"""
    found: Iterator[str] = (getattr(report, "late", "") for report in reports)
    texts = list(found)
    return texts[0] if all(texts) else ""
