"""
How a test waits for what another thread or process does, and what it raises when that does not come.

`Late` says that something has not happened yet. It says nothing of whether it would have been right. Only the functions
that wait raise it, so that a run can tell a slow machine from a wrong answer (`tests/run/second_look.py`).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Late", "LateAnswer", "eventually", "settles"]

FIRST_PAUSE_S: Final = 0.002
LONGEST_PAUSE_S: Final = 0.05


class Late(AssertionError):
    """Did not come in time"""


class LateAnswer(Late, TimeoutError):
    """The other end of a connection has sent nothing within the time limit of the socket"""


def eventually(condition: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
    """Asks again and again, less and less often, until the condition holds; raises `Late` where it does not"""
    waited = _until(condition, timeout)
    if waited is not None:
        raise Late(f"has not happened within {waited:.1f} s: {what}")


def settles(condition: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
    """
    The same of what is to be given back: a thing that stays is a leak, and no lateness. The next run may have none, so
    it is never asked again.
    """
    waited = _until(condition, timeout)
    assert waited is None, f"still not so after {waited:.1f} s: {what}"


def _until(condition: Callable[[], bool], timeout: float) -> float | None:
    """How long it has waited in vain"""
    pause = threading.Event()
    begun = time.monotonic()
    wait = FIRST_PAUSE_S
    while not condition():
        waited = time.monotonic() - begun
        if waited > timeout:
            return waited
        pause.wait(wait)
        wait = min(1.5 * wait, LONGEST_PAUSE_S)
    return None
