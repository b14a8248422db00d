"""What the parts have left behind: pytest's files in JUnit's format, and the log of each part"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Found", "read_junit", "read_log"]

LAST_LINES: Final = 15
CARGO_FAILED: Final = re.compile(r"^test (\S+) \.\.\. FAILED$")
CARGO_RESULT: Final = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed")
CARGO_OUTPUT: Final = re.compile(r"^---- (\S+) stdout ----$")
NEXTEST_RESULT: Final = re.compile(r"^ +Summary \[.*\] (?:\d+/)?\d+ tests? run: (\d+) passed")
NEXTEST_ENDED: Final = re.compile(
    r"^ +([A-Z][A-Z-]*(?: SIG \d+| \+ LEAK)?) +\[ *[\d.]+s\] (?:\( *\d+/\d+\) )?(\S+ \S+)$"
)
NEXTEST_RIGHT: Final = {"LEAK", "PASS", "SLOW"}
PANIC: Final = re.compile(r"^ *thread '.*' .*panicked at (.*):$")


@dataclass
class Found:
    """Of the tests of one part, or of several"""

    passed: int = 0
    skipped: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    """By the name of the test, the first line of what is wrong"""
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, other: Found) -> None:
        self.passed += other.passed
        self.skipped += other.skipped
        self.failures.update(other.failures)
        self.seconds.update(other.seconds)


def read_junit(path: Path) -> Found:
    """A file that pytest has not finished counts as a failure of its own"""
    found = Found()
    try:
        cases = ET.parse(path).getroot().iter("testcase")
    except (OSError, ET.ParseError) as error:
        found.failures[path.name] = f"cannot be read: {error}"
        return found
    for case in cases:
        name = _name(case)
        found.seconds[name] = found.seconds.get(name, 0.0) + float(case.get("time", "0"))
        wrong = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
        if wrong is not None:
            found.failures[name] = _first_line(wrong.get("message") or wrong.text or "")
        elif case.find("skipped") is not None:
            found.skipped += 1
        elif name not in found.failures:
            found.passed += 1
    return found


def _name(case: ET.Element) -> str:
    """As pytest takes it: the file, the class if there is one, the function with its parameters"""
    module, file = case.get("classname", ""), case.get("file")
    if file is None:
        return f"{module.replace('.', '/')}.py::{case.get('name')}"
    inside = module.removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".")
    return "::".join([file, *filter(None, [inside]), case.get("name", "")])


def read_log(text: str) -> Found:
    """What the tests of cargo and of cargo-nextest say; pytest's are in its own file"""
    found = Found()
    lines = text.splitlines()
    for line in lines:
        if result := CARGO_RESULT.match(line) or NEXTEST_RESULT.match(line):
            found.passed += int(result[1])
        elif (ended := NEXTEST_ENDED.match(line)) and ended[1] not in NEXTEST_RIGHT:
            found.failures[ended[2]] = ended[1]
        elif failed := CARGO_FAILED.match(line):
            found.failures[failed[1]] = ""
    found.failures.update(_panics(lines))
    return found


def _panics(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Of each test that has failed, where it panicked and with which text"""
    test = ""
    for number, line in enumerate(lines):
        if output := CARGO_OUTPUT.match(line):
            test = output[1]
        elif ended := NEXTEST_ENDED.match(line):
            test = "" if ended[1] in NEXTEST_RIGHT else ended[2]
        elif test and (panic := PANIC.match(line)):
            yield test, f"{panic[1]}: {lines[number + 1].strip() if number + 1 < len(lines) else ''}"
            test = ""


def last_lines(text: str) -> list[str]:
    """Where nothing says which test it was"""
    return [line for line in text.splitlines() if line.strip()][-LAST_LINES:]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
