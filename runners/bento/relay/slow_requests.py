"""Finds what takes long, at next to no cost for what does not: a timer for all, where each of its own is dear"""

from __future__ import annotations

import asyncio
from typing import Protocol

__all__ = ["SlowRequests"]

_SECONDS = 0.05


class Member(Protocol):
    """What may take long"""

    def became_slow(self) -> None:
        """Called once, after one to two periods"""


class SlowRequests:
    """The members that are under way"""

    def __init__(self) -> None:
        self._new: set[Member] = set()
        self._old: set[Member] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, member: Member) -> None:
        self._new.add(member)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SECONDS, self._look)

    def discard(self, member: Member) -> None:
        self._new.discard(member)
        self._old.discard(member)

    def _look(self) -> None:
        late, self._old, self._new = self._old, self._new, set()
        # Who was told is heard no more of.
        for member in late:
            member.became_slow()
        running = self._old or self._new
        self._timer = asyncio.get_running_loop().call_later(_SECONDS, self._look) if running else None
