"""On which cores the threads and processes of a server run, as the system says it"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CORES", "processes_on", "threads_on"]

CORES: Final = sorted(os.sched_getaffinity(0))
"""That tests may use"""


def threads_on(pid: int, core: int) -> list[str]:
    """The names of the threads of a process that may run on this core and no other."""
    return sorted(name for name, cores in _threads(pid) if cores == str(core))


def processes_on(pid: int, core: int) -> int:
    """How many processes that this one has started have all their threads on this core and no other."""
    children = {int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in _words(path)}
    return sum({cores for _, cores in _threads(child)} == {str(core)} for child in children)


def _threads(pid: int) -> Iterator[tuple[str, str]]:
    for task in Path(f"/proc/{pid}/task").glob("*"):
        # a thread may end meanwhile
        with suppress(FileNotFoundError, ProcessLookupError):
            allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", (task / "status").read_text(), re.MULTILINE)
            if allowed:
                yield (task / "comm").read_text(encoding="utf-8", errors="replace").strip(), allowed[1]


def _words(path: Path) -> list[str]:
    with suppress(FileNotFoundError, ProcessLookupError):
        return path.read_text().split()
    return []
