"""What /proc tells about a server: its processes, the cores they may use, the memory they hold."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["cpu_seconds", "pin", "pinned", "pss_mb", "rss_mb", "tree"]

PROC = Path("/proc")
PROCESS_CLOCK = 2  # CPUCLOCK_SCHED of clock_getcpuclockid(3)


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    parents = {int(entry.name): _parent(entry) for entry in PROC.iterdir() if entry.name.isdigit()}
    found = [pid]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def _parent(entry: Path) -> int | None:
    try:
        after_name = (entry / "stat").read_text().rpartition(")")[2]
    except OSError:  # gone meanwhile
        return None
    return int(after_name.split()[1])


def pin(pid: int, core: int) -> None:
    """Every thread of the tree, as `taskset -a -c -p CORE PID` does; threads started later inherit it."""
    for member in tree(pid):
        for thread in (PROC / str(member) / "task").iterdir():
            try:
                os.sched_setaffinity(int(thread.name), {core})
            except ProcessLookupError:
                continue


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """This thread, so that what it starts meanwhile is pinned from the first moment."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(pid: int) -> float:
    """The processor time of one process so far, of threads that have ended as well."""
    return time.clock_gettime((~pid << 3) | PROCESS_CLOCK)


def pss_mb(pid: int) -> float:
    """Proportional set size of the tree in MB: private pages, and a fair share of the shared ones."""
    total_kb = 0
    for member in tree(pid):
        for line in (PROC / str(member) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total_kb += int(line.split()[1])
    return total_kb * 1024 / 1e6


def rss_mb(pid: int) -> float:
    """Resident memory of one process in MB: cheap enough to be asked for while it works."""
    pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
