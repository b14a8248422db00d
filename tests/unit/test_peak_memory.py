"""A peak of memory is seen behind an earlier one that was higher, and given back."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from tests.serving import Server

pytestmark = pytest.mark.alone

# takes so many bytes for each line that it reads, and gives them back
PROGRAM: Final = """
import mmap, sys
for line in sys.stdin:
    with mmap.mmap(-1, int(line)) as taken:
        taken.write(b"x" * int(line))
    print(flush=True)
"""
MIB: Final = 1 << 20


class Taking(Server):
    """What `Server` measures of a process"""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM], **pipes)  # type: ignore[call-overload]

    def take(self, size: int) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{size}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()


def test_a_growth_is_red_whatever_the_process_had_before() -> None:
    taking = Taking()
    # at its end the pipes are closed, and the process ends by that
    with taking.process:
        taking.take(256 * MIB)
        with pytest.raises(AssertionError, match="the server grew by"), taking.grows_by_less_than(32 << 10):
            taking.take(64 * MIB)
        with taking.grows_by_less_than(192 << 10):
            taking.take(64 * MIB)
