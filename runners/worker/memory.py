"""
Memory that is given back is used again.

By default glibc returns large blocks to the system at once, so that each array of a batch is made of new pages: for
600 KB that costs more than to fill them.
"""

from __future__ import annotations

import ctypes
import os

__all__ = ["keep"]

# of mallopt; the second is as large as glibc takes it
_TRIM_THRESHOLD = (-1, 256 << 20)
_MMAP_THRESHOLD = (-3, 32 << 20)
_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep() -> None:
    """Has an effect where glibc allocates, and nobody has told it otherwise"""
    if any(name in os.environ for name in _OWN):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
        mallopt(parameter, value)
