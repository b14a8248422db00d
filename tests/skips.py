"""What a run could not show: in the file that the variable TIMES names, each test that was skipped, with the reason."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

__all__ = ["pytest_terminal_summary"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The variable is that of .ci/run, which shows the file at its end."""
    if hasattr(terminalreporter.config, "workerinput"):
        # one of several processes: the one that began them has all reports
        return
    named = os.environ.get("TIMES")
    reports = terminalreporter.stats.get("skipped", [])
    if named and reports:
        with Path(named).open("a", encoding="utf-8") as times:
            times.writelines(f"--- SKIPPED {line}\n" for line in lines(reports))


def lines(reports: list[pytest.TestReport | pytest.CollectReport]) -> Iterator[str]:
    """The tests of a file that have a reason in common, and of one with many parameters how many those are."""
    reasons: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for report in reports:
        path, _, test = report.nodeid.partition("::")
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = " ".join(reason.removeprefix("Skipped: ").split())
        reasons[path, reason][test.partition("[")[0] or "the whole file"] += 1
    for (path, reason), tests in sorted(reasons.items()):
        names = ", ".join(f"{name} ({count} times)" if count > 1 else name for name, count in sorted(tests.items()))
        yield f"{path}: {names}: {reason}"
