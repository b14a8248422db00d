"""What the system tells of processes and their threads, any of which may end while one looks"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["children", "lives", "of_threads", "thread_names", "thread_states"]


def lives(pid: int) -> bool:
    """Whether a process runs: one that has ended may stay in the table for as long as nobody asks how"""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    return False


def children(pid: int) -> list[int]:
    """The processes that a process has started. Each says itself whose it is: lists of threads change as threads end"""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            if process.name.isdecimal() and _parent(process) == pid:
                found.append(int(process.name))
    return sorted(found)


def _parent(process: Path) -> int:
    return int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])


def thread_names(pid: int) -> dict[int, str]:
    """The threads of a process, which has none once it has ended"""
    return {thread: name.strip() for thread, name in of_threads(pid, "comm")}


def thread_states(pid: int) -> list[tuple[str, str]]:
    """The name of each thread and what it does, in the letters of /proc: R runs, S waits, T is stopped, Z has ended"""
    states = []
    for _, text in of_threads(pid, "stat"):
        name, _, rest = text.rpartition(")")
        states.append((name.partition("(")[2], rest.split()[0]))
    return states


def of_threads(pid: int, file: str) -> Iterator[tuple[int, str]]:
    """What a file says of each thread that still is there"""
    gone = suppress(FileNotFoundError, ProcessLookupError)
    with gone:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with gone:
                yield int(thread.name), (thread / file).read_text(encoding="utf-8", errors="replace")
