"""
The streams of GPUs on which instances compute. Each belongs to one instance at a time and to nobody else: PyTorch's own
streams are 32 for a whole process, and whoever works on one that is being captured gets into the graph.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import torch

__all__ = ["Pool", "streams_of"]

Stream = TypeVar("Stream")

_DRIVER = "libcuda.so.1"
# it does not wait for the default stream, nor that one for it
_NON_BLOCKING = 1


class Pool(Generic[Stream]):
    """Makes a stream where none is free, and keeps all: PyTorch keeps memory by the stream that it was used on"""

    def __init__(self, make: Callable[[], Stream]) -> None:
        self._make = make
        self._free: list[Stream] = []

    def take(self) -> Stream:
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    def give_back(self, stream: Stream) -> None:
        """Nobody must use it any more"""
        self._free.append(stream)


@cache
def streams_of(gpu: int) -> Pool[Any]:
    """Those of the GPU with this number"""
    return Pool(lambda: _new_stream(gpu))


def _new_stream(gpu: int) -> torch.cuda.Stream:
    if torch.version.hip:
        # not NVIDIA's driver; its streams are those of the process
        return torch.cuda.Stream(gpu)
    made = ctypes.c_void_p()
    with torch.cuda.device(gpu):
        # the context of the GPU is this thread's only after a call that needs it
        torch.cuda.current_stream().synchronize()
        status = ctypes.CDLL(_DRIVER).cuStreamCreate(ctypes.byref(made), ctypes.c_uint(_NON_BLOCKING))
    if status:
        raise RuntimeError(f"a stream of GPU {gpu} cannot be made: the driver answered {status}")
    return torch.cuda.ExternalStream(made.value, device=torch.device("cuda", gpu))
