"""
How the tensors of one batch lie in the memory that a GPU copies without the processor: pinned memory of the host, one
piece for all tensors of a direction, reused from batch to batch. Plans alone: nothing here touches memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["MOST_STAGED_BYTES", "Staging", "capacity", "plan_staging"]

MOST_STAGED_BYTES = 256 << 20
"""Of one instance and direction. What does not fit is copied from ordinary memory, and waited for"""
_LEAST_BYTES = 64 << 10
_ALIGNMENT = 256
"""That of CUDA's own allocations: any type may lie there"""


@dataclass(frozen=True)
class Staging:
    """Where each tensor begins; `None`: it does not go through this memory"""

    offsets: tuple[int | None, ...]
    bytes: int
    """That all of them take together"""


def plan_staging(sizes: Sequence[int | None], most: int = MOST_STAGED_BYTES) -> Staging:
    """`sizes`: the bytes of each tensor, None for one that is not to be copied, or not in this way"""
    offsets: list[int | None] = []
    end = 0
    for size in sizes:
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        fits = size is not None and start + size <= most
        offsets.append(start if fits else None)
        if size is not None and fits:
            end = start + size
    return Staging(tuple(offsets), end)


def capacity(needed: int, present: int, most: int = MOST_STAGED_BYTES) -> int:
    """
    How many bytes the memory is to have: as many as it has while they are enough, else a power of two. PyTorch rounds
    pinned memory up to one by itself, so that a share of fewer bytes would say less than what is pinned
    """
    if needed <= present:
        return present
    return min(most, max(_LEAST_BYTES, 1 << (needed - 1).bit_length()))
