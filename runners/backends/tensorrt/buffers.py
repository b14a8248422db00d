"""The memory of one batch at a time, on both sides, and the events by which its way through the GPU is followed"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import EngineFailed
from .cuda import DeviceMemory, Event
from .host import HostBlock
from .library import dims, trt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..pinned import PinnedBudget
    from .cuda import Gpu
    from .staging import Layout

__all__ = ["Buffers", "GrowingOutput", "OutputSwitch"]


class GrowingOutput:
    """The memory of an output whose shape is known only when it is computed, on both sides"""

    def __init__(self, owner: Gpu, budget: PinnedBudget) -> None:
        self._owner = owner
        self._memory = DeviceMemory(owner, 1)
        self.host = HostBlock(owner, budget)
        self.shape: tuple[int, ...] = ()

    @property
    def address(self) -> int:
        """Where it lies on the GPU"""
        return self._memory.address

    def grow(self, size: int) -> int:
        """At least so many bytes on the GPU; 0 where there are none"""
        if size > self._memory.size:
            try:
                self._memory = DeviceMemory(self._owner, size)
            except EngineFailed:
                return 0
        return self._memory.address


class OutputSwitch(trt.IOutputAllocator):  # type: ignore[misc] # untyped where there are no stubs of it
    """What a context asks for the memory of a growing output: that of the batch which it is about to run"""

    def __init__(self) -> None:
        trt.IOutputAllocator.__init__(self)
        self.current: GrowingOutput | None = None

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:  # noqa: ARG002 - TensorRT's
        """Called by TensorRT, inside of a run"""
        return self.current.grow(size) if self.current else 0

    def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:  # noqa: ARG002 - TensorRT's
        """The same"""
        return self.current.grow(size) if self.current else 0

    def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:  # noqa: ARG002 - TensorRT's
        """Called by TensorRT, once it is known, before the run is launched"""
        if self.current:
            self.current.shape = dims(shape)


class Buffers:
    """What one batch has for itself. An instance has two of them, so that a batch is copied while another computes"""

    def __init__(
        self, owner: Gpu, layout: Layout, growing: Sequence[str], budget: PinnedBudget, *, busy_wait: bool
    ) -> None:
        self._owner = owner
        self._device = DeviceMemory(owner, layout.total_bytes)
        self.host = HostBlock(owner, budget)
        self.addresses: Mapping[str, int] = {
            name: self._device.address + offset for name, offset in layout.offsets.items()
        }
        self.growing = {name: GrowingOutput(owner, budget) for name in growing}
        self.sizes = layout.sizes
        self.filled = Event(owner)
        self.computed = Event(owner)
        self.done = Event(owner, busy_wait=busy_wait)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._device.size} bytes of GPU {self._owner.number})"
