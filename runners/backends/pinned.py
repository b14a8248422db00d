"""
How much memory of the host engines may pin, so that GPUs copy it without a detour: `--pinned-memory-pool-byte-size`.

The system cannot move pinned memory or lend it to others, so all engines of a server share one budget. An engine asks
before it pins, and copies from ordinary memory where it gets nothing. Any thread may ask.
"""

import threading
import weakref
from collections import deque

__all__ = ["PinnedBudget", "PinnedShare"]


class PinnedShare:
    """Bytes that its owner may pin until it gives them back; it is given back with its last reference as well"""

    def __init__(self, budget: "PinnedBudget", size_bytes: int) -> None:
        self.bytes = size_bytes
        self._give_back = weakref.finalize(self, budget._given_back.append, size_bytes)  # noqa: SLF001 - its other half
        self._give_back.atexit = False

    def give_back(self) -> None:
        """To be called once the memory is no longer pinned; a second call does nothing"""
        self._give_back()


class PinnedBudget:
    """What is held together never exceeds `most_bytes`"""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._held_bytes = 0
        self._lock = threading.Lock()
        # the garbage collector gives shares back at any moment, also on a thread that has the lock
        self._given_back: deque[int] = deque()

    @property
    def held_bytes(self) -> int:
        """What shares hold now"""
        with self._lock:
            return self._held()

    @property
    def room_bytes(self) -> int:
        """What nobody holds now; another thread may take it before the next line"""
        return self.most_bytes - self.held_bytes

    def ask(self, wanted_bytes: int, *, least_bytes: int | None = None) -> PinnedShare | None:
        """
        All that is wanted, or where that is too much just the least that is of use, or nothing. Half of a buffer is of
        no use, so that without `least_bytes` it is all or nothing
        """
        with self._lock:
            held = self._held()
            room = self.most_bytes - held
            size = wanted_bytes if least_bytes is None or wanted_bytes <= room else least_bytes
            if size > room:
                return None
            self._held_bytes = held + size
        return PinnedShare(self, size)

    def _held(self) -> int:
        """Under the lock"""
        while self._given_back:
            self._held_bytes -= self._given_back.popleft()
        return self._held_bytes
