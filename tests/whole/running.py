"""Runs one part: what it prints is shown as it comes, and kept."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .parts import Part

__all__ = ["Outcome", "Ran", "adopt", "end_all", "run"]

LEFT_S: Final = 10.0
LOOKS_S: Final = 0.05
SET_CHILD_SUBREAPER: Final = 36
CHOOSING: Final = {"ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "NATIVE_PROFILE", "PYTEST_ADDOPTS", "PYTEST_ARGS"}
"""With these a part would be some other part"""


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    TOO_LONG = "ended at its time limit"
    LEFT_OUT = "left out: what it needs has failed"


@dataclass(frozen=True)
class Ran:
    """A part that has ended, or was left out"""

    name: str
    outcome: Outcome
    seconds: float = 0.0
    load: float = 0.0
    """Of the machine when it had ended: how many wanted a core within the last minute"""
    left: tuple[str, ...] = ()
    """Commands of processes that it has left behind, and that were ended"""


STRANGERS: Final[set[int]] = set()
"""Children of this process that it has not begun: it took the place of a shell that had begun them"""


def adopt() -> None:
    """Processes below this one that lose their parent become its children, to be found when their part has ended"""
    STRANGERS.update(_children())
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(part: Part, log: Path, environment: Mapping[str, str]) -> Ran:
    """Nothing of it is there afterwards, however it ended"""
    began = time.monotonic()
    with log.open("wb") as kept:
        process = subprocess.Popen(
            part.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**{name: value for name, value in os.environ.items() if name not in CHOOSING}, **environment},
            start_new_session=True,
        )
        reader = threading.Thread(target=_show, args=(process, kept), daemon=True)
        reader.start()
        try:
            outcome = _outcome(process, began + part.limit_s)
        finally:
            left = end_all()
            # what nobody could end may hold the other end
            reader.join(LEFT_S)
    # one that is ended in the midst of its work has left nothing, it was at work
    named = () if outcome == Outcome.TOO_LONG else left
    return Ran(part.name, outcome, time.monotonic() - began, os.getloadavg()[0], named)


def _outcome(process: subprocess.Popen[bytes], until: float) -> Outcome:
    """Meanwhile those that were adopted and have ended are let go, as by init: else they would be taken for living"""
    while time.monotonic() < until:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return Outcome.PASSED if process.returncode == 0 else Outcome.FAILED
        if pid == 0:
            time.sleep(LOOKS_S)
    return Outcome.TOO_LONG


def _show(process: subprocess.Popen[bytes], kept: BinaryIO) -> None:
    assert process.stdout is not None
    while data := os.read(process.stdout.fileno(), 1 << 16):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        kept.write(data)
        kept.flush()


def end_all() -> tuple[str, ...]:
    """Of all processes that this one has begun, and they in turn. Answers what was still there"""
    left: dict[int, str] = {}
    until = time.monotonic() + LEFT_S
    # the children of one that is ended are children of this process then
    while (children := set(_children()) - STRANGERS) and time.monotonic() < until:
        for child in children:
            # one that had ended already has no command any more
            left.setdefault(child, _command(child))
            # of another user, or gone meanwhile
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        time.sleep(LOOKS_S / 10)
    return tuple(filter(None, left.values()))


def _children() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        # it may end meanwhile
        with suppress(OSError):
            parent = int(path.read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()[1])
            if parent == os.getpid():
                yield int(path.parent.name)


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
