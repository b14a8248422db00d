"""
Where the tensors of a batch lie in one block of memory of the GPU and in one of the host.

Every tensor begins at a multiple of 256 bytes, which TensorRT asks for. The block of the GPU has room for the largest
batch from the start, so that what does not fit is found out when the model loads; that of the host
grows with the batches.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "Layout", "lay_out"]

ALIGNMENT = 256


@dataclass(frozen=True)
class Layout:
    """Where each tensor begins, and how large the block is"""

    offsets: Mapping[str, int]
    sizes: Mapping[str, int]
    total_bytes: int


def lay_out(sizes: Iterable[tuple[str, int]]) -> Layout:
    """One tensor behind the other, by their sizes in bytes; an empty one has an address of its own all the same"""
    offsets: dict[str, int] = {}
    stated = dict(sizes)
    end = 0
    for name, size in stated.items():
        offsets[name] = end
        end += -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
    return Layout(offsets, stated, end)
