"""On which cores the threads and processes of a server run, as the system says it"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tests.processes import children, of_threads

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
    return sum({cores for _, cores in _threads(child)} == {str(core)} for child in children(pid))


def _threads(pid: int) -> Iterator[tuple[str, str]]:
    for _, status in of_threads(pid, "status"):
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        yield fields["Name"], fields["Cpus_allowed_list"]
