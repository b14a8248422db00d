"""
The memory of the host through which batches go to the GPU and come back, one batch at a time.

It is pinned as far as the budget of the server has room, and grows with the batches. A batch that gets no pinned memory
goes through ordinary memory: what is pinned stays so for smaller ones, and the next larger one asks again. Where the
budget has no room, that costs no call of CUDA's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .cuda import PinnedMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..pinned import PinnedBudget
    from .cuda import Gpu

__all__ = ["HostBlock"]

_LEAST_BYTES = 64 * 1024


class HostBlock:
    """What `room` has answered is used up to the next call: memory that grows lies elsewhere then"""

    def __init__(self, owner: Gpu, budget: PinnedBudget) -> None:
        self._owner = owner
        self._budget = budget
        self._pinned: PinnedMemory | None = None
        self._ordinary: NDArray[np.uint8] = np.empty(0, np.uint8)

    def room(self, size: int) -> tuple[int, NDArray[np.uint8]]:
        """For one batch, at least so many bytes: their address, and the memory"""
        if self._pinned is None or size > self._pinned.size:
            self._pin(size)
        if self._pinned is not None and size <= self._pinned.size:
            return self._pinned.address, self._pinned.bytes
        if size > len(self._ordinary):
            self._ordinary = np.empty(size, np.uint8)
        return self._ordinary.ctypes.data, self._ordinary

    def _pin(self, size: int) -> None:
        """Where the budget has room: twice as much as before, or else just enough"""
        held = self._pinned.size if self._pinned else 0
        if max(size, 1) > self._budget.room_bytes + held:
            return
        # first the old memory, which no batch uses any more: its share counts for the new one
        self._pinned = None
        share = self._budget.ask(max(size, 2 * held, _LEAST_BYTES), least_bytes=max(size, 1))
        if share is not None:
            self._pinned = PinnedMemory(self._owner, share)
            self._ordinary = np.empty(0, np.uint8)
