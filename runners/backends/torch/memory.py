"""
The memory that PyTorch keeps for later: given back to the system, but never while a CUDA graph is captured.

Whoever wants it given back does not wait for a capture. The garbage collector may run the finalizer of an engine on the
very thread that captures, and that would wait for itself. So a wish is written down, and whoever has the lock does it:
a capture when it is over, or else the thread that wishes.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CAPTURES", "Captures", "give_back_gpu_memory", "give_back_memory"]


class Captures:
    """One at a time, and what must not happen meanwhile; any thread may call, also from a finalizer"""

    def __init__(self) -> None:
        self._lock = Lock()
        # a set takes and gives in one step of the interpreter: a lock here could be asked for twice by one thread
        self._wished: set[Callable[[], None]] = set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Inside, a graph may be captured"""
        try:
            with self._lock:
                yield
        finally:
            self._do_wished()

    def outside(self, *wished: Callable[[], None]) -> None:
        """Does it now, or leaves it to the capture that is under way; many that wish the same get it once"""
        self._wished.update(wished)
        self._do_wished()

    def _do_wished(self) -> None:
        # again each time, since somebody may have wished something in vain while the lock was held here
        while self._wished and self._lock.acquire(blocking=False):
            try:
                while self._wished:
                    self._wished.pop()()
            finally:
                self._lock.release()


CAPTURES = Captures()
"""Those of the process, on all its GPUs"""


def give_back_memory() -> None:
    """What PyTorch keeps of the memory of GPUs, and of pinned memory, for whoever asks next, goes back to the system"""
    if torch.cuda.is_initialized():
        CAPTURES.outside(_empty_gpus, _empty_pinned)


def give_back_gpu_memory() -> None:
    """That of GPUs alone: to pin memory again for each batch would cost more than it is worth"""
    if torch.cuda.is_initialized():
        CAPTURES.outside(_empty_gpus)


def _empty_gpus() -> None:
    torch.cuda.empty_cache()


def _empty_pinned() -> None:
    if hasattr(torch._C, "_host_emptyCache"):  # noqa: SLF001 - there is no public way
        torch._C._host_emptyCache()  # noqa: SLF001
