"""Processes that are not the children of a test."""

from pathlib import Path

__all__ = ["lives"]


def lives(pid: int) -> bool:
    """Whether a process runs: one that has ended may stay in the table for as long as nobody asks how"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
