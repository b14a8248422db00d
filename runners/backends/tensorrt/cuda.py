"""
The few things of a GPU that a run of a plan needs, on CUDA's driver: streams, events, memory, graphs.

A thread that calls any of this has entered the GPU before (`Gpu.enter`). What waits for the GPU gives up the GIL.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from cuda.bindings import driver
from numpy.typing import NDArray

from ...errors import EngineFailed
from ..pinned import PinnedShare
from ..python_engine import ModelFailed

__all__ = ["DeviceMemory", "Event", "Gpu", "Graph", "PinnedMemory", "Stream", "gpu"]

_OUT_OF_MEMORY = driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
_ATTRIBUTE = driver.CUdevice_attribute


def _checked(answer: tuple[Any, ...], what: str) -> Any:  # noqa: ANN401 - what a function of the driver gives
    status, *values = answer
    if status != driver.CUresult.CUDA_SUCCESS:
        named, name = driver.cuGetErrorName(status)
        text = name.decode() if named == driver.CUresult.CUDA_SUCCESS else str(status)
        kind = EngineFailed if status == _OUT_OF_MEMORY else ModelFailed
        raise kind(f"{what} failed: {text}")
    return values[0] if values else None


class Gpu:
    """One GPU, with the context that all libraries of a process share"""

    def __init__(self, number: int) -> None:
        self.number = number
        try:
            _checked(driver.cuInit(0), "the start of CUDA")
        except RuntimeError as error:
            # there is no driver, or an older one
            raise EngineFailed(f"the driver of NVIDIA cannot be used: {error}") from error
        device = _checked(driver.cuDeviceGet(number), f"the look for GPU {number}")
        self._context = _checked(driver.cuDevicePrimaryCtxRetain(device), f"the context of GPU {number}")
        self.name: str = _checked(driver.cuDeviceGetName(256, device), "the name of a GPU").split(b"\0")[0].decode()
        major, minor = (
            _checked(driver.cuDeviceGetAttribute(one, device), "an attribute of a GPU")
            for one in (
                _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        self.compute_capability = f"{major}.{minor}"

    def enter(self) -> None:
        """What this thread does from now on is done on this GPU"""
        _checked(driver.cuCtxSetCurrent(self._context), f"the use of GPU {self.number}")


@cache
def gpu(number: int) -> Gpu:
    """The GPU of this number; its context stays as long as the process, as with other libraries"""
    return Gpu(number)


class Stream:
    """Work in order; streams of higher priority are served first"""

    def __init__(self, owner: Gpu, priority: int = 0) -> None:
        least, greatest = _both(driver.cuCtxGetStreamPriorityRange(), "the priorities of streams")
        wanted = {0: 0, 1: greatest, -1: least}[priority]
        flag = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.handle = _checked(driver.cuStreamCreateWithPriority(flag, wanted), "a stream")
        weakref.finalize(self, _free, owner, driver.cuStreamDestroy, self.handle)

    @property
    def address(self) -> int:
        """As TensorRT takes it"""
        return int(self.handle)

    def wait_for(self, event: Event) -> None:
        """What comes next waits for what was recorded"""
        _checked(driver.cuStreamWaitEvent(self.handle, event.handle, 0), "the wait for an event")

    def synchronize(self) -> None:
        """Waits for all that is in it"""
        _checked(driver.cuStreamSynchronize(self.handle), "the wait for a stream")

    def copy_to_gpu(self, target: int, source: int, size: int) -> None:
        """From the memory of the host"""
        if size:
            _checked(driver.cuMemcpyHtoDAsync(target, source, size, self.handle), "a copy to the GPU")

    def copy_to_host(self, target: int, source: int, size: int) -> None:
        """From the memory of the GPU"""
        if size:
            _checked(driver.cuMemcpyDtoHAsync(target, source, size, self.handle), "a copy from the GPU")

    def record_graph(self, work: Callable[[], None]) -> Graph:
        """What `work` puts into the stream, which is not executed meanwhile"""
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        collects = gc.isenabled()
        # what the collector finds may be memory of the GPU, which cannot be freed meanwhile
        gc.disable()
        try:
            _checked(driver.cuStreamBeginCapture(self.handle, mode), "the recording of a graph")
            try:
                work()
            except BaseException:
                _, unfinished = driver.cuStreamEndCapture(self.handle)
                driver.cuGraphDestroy(unfinished)
                raise
            return Graph(_checked(driver.cuStreamEndCapture(self.handle), "the recording of a graph"))
        finally:
            if collects:
                gc.enable()


class Event:
    """A place in a stream"""

    def __init__(self, owner: Gpu, *, busy_wait: bool = False) -> None:
        """busy_wait: whoever waits keeps a core busy, and hears of it sooner"""
        flags = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        if not busy_wait:
            flags |= driver.CUevent_flags.CU_EVENT_BLOCKING_SYNC
        self.handle = _checked(driver.cuEventCreate(flags), "an event")
        weakref.finalize(self, _free, owner, driver.cuEventDestroy, self.handle)

    def record(self, stream: Stream) -> None:
        """Behind all that is in the stream"""
        _checked(driver.cuEventRecord(self.handle, stream.handle), "an event")

    def synchronize(self) -> None:
        """Waits until the stream has come there"""
        _checked(driver.cuEventSynchronize(self.handle), "the work on the GPU")


class Graph:
    """Recorded work, which is put into a stream in one call"""

    def __init__(self, recorded: Any) -> None:  # noqa: ANN401 - a graph of the driver's
        try:
            self._executable = _checked(driver.cuGraphInstantiate(recorded, 0), "a graph")
        finally:
            driver.cuGraphDestroy(recorded)
        weakref.finalize(self, driver.cuGraphExecDestroy, self._executable)

    def launch(self, stream: Stream) -> None:
        """Executes it"""
        _checked(driver.cuGraphLaunch(self._executable, stream.handle), "a graph")


class DeviceMemory:
    """A block in the memory of the GPU"""

    def __init__(self, owner: Gpu, size: int) -> None:
        what = f"the use of {size} bytes of the memory of GPU {owner.number}"
        self.address = int(_checked(driver.cuMemAlloc(max(size, 1)), what))
        self.size = size
        weakref.finalize(self, _free, owner, driver.cuMemFree, self.address)


class PinnedMemory:
    """A block in the memory of the host that the GPU copies from and to by itself. Its share goes back behind it"""

    def __init__(self, owner: Gpu, share: PinnedShare) -> None:
        self.size = share.bytes
        what = f"the use of {self.size} bytes of memory of the host for copies"
        flags = driver.CU_MEMHOSTALLOC_PORTABLE
        self.address = int(_checked(driver.cuMemHostAlloc(max(self.size, 1), flags), what))
        block = (ctypes.c_uint8 * self.size).from_address(self.address)
        self.bytes: NDArray[np.uint8] = np.ctypeslib.as_array(block)
        weakref.finalize(self, _unpin, owner, self.address, share)


def _both(answer: tuple[Any, Any, Any], what: str) -> tuple[int, int]:
    status, first, second = answer
    _checked((status,), what)
    return int(first), int(second)


def _unpin(owner: Gpu, address: int, share: PinnedShare) -> None:
    _free(owner, driver.cuMemFreeHost, address)
    share.give_back()


def _free(owner: Gpu, function: Callable[[Any], Any], what: object) -> None:
    """On whichever thread drops it; one that fails now has failed before, where it was said"""
    driver.cuCtxPushCurrent(owner._context)  # noqa: SLF001 - of this module
    function(what)
    driver.cuCtxPopCurrent()
