"""
Each test belongs to one tier, which its markers name.

* plain, without a marker: no clock, no limits of the process. Such tests run in several processes at once.
* clock: real time is part of what is tested, or the descriptors, threads or memory of a process. Two processes, nothing
  beside.
* alone: much memory, limits, kills, thousands of connections. One process, nothing beside.
* scheduled: long or random. A target of its own runs them, `make test` does not.

A test that does what its tier does not allow fails by name: `Fence` sees the calls below where a file of tests makes
them, and functions of tests that know better say so themselves (`needs`).
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = [
    "ALONE",
    "CLOCK",
    "PLAIN",
    "SCHEDULED",
    "TIERS",
    "Fence",
    "add_options",
    "is_of_other_tiers",
    "needs",
    "select",
    "tier_of",
]

PLAIN, CLOCK, ALONE, SCHEDULED = TIERS = ("plain", "clock", "alone", "scheduled")
BESIDE_OTHERS: Final = {"unit", "contract", "integration", "e2e", "planted", "torch", "tensorflow", "fil", "buckets"}
"""The suites of which several processes run tests; the others have a target each, and one process"""
HINT: Final = "mark it so, or wait for what it waits for (CONTRIBUTING.md, Tests)"
FOLDER: Final = str(Path(__file__).resolve().parent.parent)
OWN_LIBRARIES: Final = re.compile(r"(None||libc\.so\.6|.*/libstand-in[^/]*)$")
"""Those that every process has, and those that stand in for others under a name of their own"""
COUNTS: Final = re.compile(r"/proc/(self|\d+)/(fd|fdinfo|task)(/|$)")
MEMORY: Final = re.compile(r"/proc/(self|\d+)/(status|statm|smaps|smaps_rollup|clear_refs)$")
WRAPPERS: Final = {"ctypes", "pathlib", "glob", "os", "shutil"}
"""Modules between a test and what it asks of the system"""


def tier_of(item: pytest.Item) -> str:
    """The strictest of those that it is marked for. What runs in one process, with nothing beside it, is alone"""
    stated = next((tier for tier in reversed(TIERS) if item.get_closest_marker(tier)), None)
    return stated or (PLAIN if BESIDE_OTHERS.intersection(item.nodeid.split("/")[1:2]) else ALONE)


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, help="run the tests of that tier alone; all but scheduled by default")


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests of the tier that is asked for. Where none is, what is scheduled is skipped by name"""
    asked = config.getoption("--tier")
    if asked is None:
        for item in items:
            if tier_of(item) == SCHEDULED:
                item.add_marker(pytest.mark.skip(reason="scheduled: --tier scheduled"))
        return
    for item in items:
        tier = tier_of(item)
        if item.get_closest_marker(tier) and not _may_have(tier, item.path):
            # of a process among several, pytest shows no UsageError
            raise RuntimeError(f"{item.nodeid} is of the tier {tier}, and nothing in its file says mark.{tier}")
    others = [item for item in items if tier_of(item) != asked]
    items[:] = [item for item in items if tier_of(item) == asked]
    config.hook.pytest_deselected(items=others)


def is_of_other_tiers(path: Path, config: pytest.Config) -> bool:
    """Of a file of tests: no test of the tier that is asked for can be in it, so nobody need read it"""
    asked = config.getoption("--tier")
    suite = path.relative_to(FOLDER).parts[0] if path.is_relative_to(FOLDER) else ""
    return asked not in {None, PLAIN} and suite in BESIDE_OTHERS and path.suffix == ".py" and not _may_have(asked, path)


def _may_have(tier: str, path: Path) -> bool:
    return f"mark.{tier}" in path.read_text(encoding="utf-8")


class _Now:
    """The test that runs, and what it has done that is not of its tier"""

    def __init__(self) -> None:
        self.tier = ""
        self.crossed: dict[str, str] = {}

    def cross(self, tier: str, what: str) -> None:
        # outside of tests everything is allowed
        if self.tier and TIERS.index(self.tier) < TIERS.index(tier):
            self.crossed[what] = tier


_NOW: Final = _Now()


def needs(tier: str, what: str) -> None:
    """The test that calls this does something that only tests of that tier, or of a stricter one, may do"""
    _NOW.cross(tier, what)


class Fence:
    """Around each test: a plugin of pytest, one for each process"""

    def __init__(self) -> None:
        # in 3.11 no event tells of these
        time.sleep = _fenced(time.sleep, CLOCK, "time.sleep")
        asyncio.sleep = _fenced(asyncio.sleep, CLOCK, "asyncio.sleep")
        os.sched_setaffinity = _fenced(os.sched_setaffinity, ALONE, "os.sched_setaffinity")
        sys.addaudithook(_audit)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        _NOW.tier = tier_of(item)
        try:
            return (yield)
        finally:
            _NOW.tier = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        # What many tests share is of none of them: which one is the first depends on the order.
        before = _NOW.tier
        if fixturedef.scope != "function":
            _NOW.tier = ""
        try:
            return (yield)
        finally:
            _NOW.tier = before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        # of the whole test, wherever it crossed but for its end: that may be the end of what many share
        tier, _NOW.tier = _NOW.tier, ""
        try:
            return (yield)
        finally:
            crossed, _NOW.crossed = _NOW.crossed, {}
            if crossed:
                told = "; ".join(f"{what} (tier {needed})" for what, needed in crossed.items())
                pytest.fail(f"a test of the tier {tier} does what is not of it: {told}: {HINT}", pytrace=False)


def _fenced(function: Callable[..., Any], tier: str, name: str) -> Any:  # noqa: ANN401 - as the function
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function
        # to let other tasks or threads run is no wait
        if tier != CLOCK or arguments[:1] != (0,):
            _cross(tier, name, sys._getframe(1))
        return function(*arguments, **named)

    return call


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _NOW.tier:
        return
    if event == "resource.setrlimit":
        _cross(ALONE, event, sys._getframe(1))
    elif event == "ctypes.dlopen" and not OWN_LIBRARIES.match(str(arguments[0])):
        _cross(ALONE, f"ctypes.CDLL({arguments[0]!r})", sys._getframe(1))
    elif event in {"open", "os.listdir", "os.scandir"} and isinstance(arguments[0], str | Path):
        path = str(arguments[0])
        if MEMORY.match(path):
            _cross(CLOCK, "reads the memory of a process", sys._getframe(1))
        elif COUNTS.match(path):
            _cross(CLOCK, f"reads /proc/…/{path.split('/', 3)[3]}", sys._getframe(1))


def _cross(tier: str, what: str, frame: FrameType | None) -> None:
    """Where the nearest caller that is no wrapper is a file of tests"""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in WRAPPERS:
        frame = frame.f_back
    if frame is not None and frame.f_code.co_filename.startswith(FOLDER):
        _NOW.cross(tier, f"{what} in {Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
