"""Whether a process that says nothing stands still, or works, or waits for a processor or a disk"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

__all__ = ["Activity", "threads_of"]

# Of the time: threads of the core wake up now and then whatever else does not.
_ACTIVE_SHARE: Final = 0.1
_MOST_SAID: Final = 50


class Activity:
    """What a process does from now on"""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._since = time.monotonic()
        self._worked = _seconds_worked(pid)
        self._waited = _seconds_waited(pid)

    def goes_on(self) -> bool:
        """False for one that is stopped, or whose threads all wait for something else"""
        active = _seconds_worked(self._pid) - self._worked
        # Of a thread that has ended nobody knows any more how long it waited.
        for thread, waited in _seconds_waited(self._pid).items():
            active += max(0.0, waited - self._waited.get(thread, 0.0))
        return active >= _ACTIVE_SHARE * (time.monotonic() - self._since) or _is_at_work(self._pid)


def threads_of(pid: int) -> str:
    """What each thread of a process does: its state in /proc and, which root may see, where in the kernel it waits"""
    found = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            # It may end meanwhile.
            with contextlib.suppress(OSError):
                name = thread.joinpath("comm").read_text(errors="replace").strip()
                found.append(f"{name} {_fields_of(thread)[0].decode()} {_place_of(thread)}".strip())
    return ", ".join(found[:_MOST_SAID])


def _seconds_worked(pid: int) -> float:
    """How long the threads of a process have used a processor, also those that have ended"""
    return sum(int(ticks) for ticks in _fields_of(Path(f"/proc/{pid}"))[11:13]) / os.sysconf("SC_CLK_TCK")


def _seconds_waited(pid: int) -> dict[str, float]:
    """How long each thread of a process has waited for a processor"""
    waited = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # It may end meanwhile, and some kernels do not count this.
        with contextlib.suppress(OSError):
            waited[thread.name] = int(thread.joinpath("schedstat").read_bytes().split()[1]) / 1e9
    return waited


def _is_at_work(pid: int) -> bool:
    """
    Whether a thread waits for a disk, or runs or is to run at this moment. How long the last one has waited for a
    processor is counted when it has got it, and not while a host has taken the processor from this whole machine.
    """
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            if _fields_of(thread)[0] in {b"D", b"R"}:
                return True
    return False


def _place_of(thread: Path) -> str:
    with contextlib.suppress(OSError):
        place = thread.joinpath("wchan").read_text()
        return "" if place == "0" else place
    return ""


def _fields_of(task: Path) -> list[bytes]:
    # The name before them, in parentheses, may be anything.
    return task.joinpath("stat").read_bytes().rpartition(b")")[2].split()
