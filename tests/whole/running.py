"""Runs one part: what it prints is shown as it comes, and kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .parts import Part

__all__ = ["Outcome", "Ran", "run"]

LEFT_S: Final = 10.0
CHOOSING: Final = {"ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "PYTEST_ADDOPTS", "PYTEST_ARGS"}
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


def run(part: Part, log: Path, environment: Mapping[str, str]) -> Ran:
    """In a process group of its own, so that a part that is ended leaves nothing behind"""
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
            outcome = Outcome.PASSED if process.wait(part.limit_s) == 0 else Outcome.FAILED
        except subprocess.TimeoutExpired:
            outcome = Outcome.TOO_LONG
        finally:
            _kill(process)
            # what a part has left behind may hold the other end
            reader.join(LEFT_S)
    return Ran(part.name, outcome, time.monotonic() - began, os.getloadavg()[0])


def _show(process: subprocess.Popen[bytes], kept: BinaryIO) -> None:
    assert process.stdout is not None
    while data := os.read(process.stdout.fileno(), 1 << 16):
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        kept.write(data)
        kept.flush()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
