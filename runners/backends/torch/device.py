"""
Where the tensors of a batch are while a model computes, and how they get there and back.

On the CPU they stay where they are. On a GPU an instance has a `Lane`: a stream, on which it computes and copies, and
pinned memory for inputs. Everything of a batch is put on the stream without waiting; then the thread waits for the
stream once, without the GIL. So a lane has one batch at a time, and when that is over its memory is free again. The
outputs lie in pinned memory of their own until nobody has them any more; PyTorch keeps it for the next ones. What is
pinned is asked of the budget that all engines share, and its share goes back when nothing shows the memory any more.
"""

from __future__ import annotations

import queue
import weakref
from collections.abc import Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from .staging import MOST_STAGED_BYTES, capacity, plan_staging
from .streams import streams_of

if TYPE_CHECKING:
    from ..pinned import PinnedBudget
    from .graphs import Graphs
    from .names import Place

__all__ = ["Host", "Lane", "Lanes", "Staged"]


class Host:
    """The memory of the CPU, which all threads may use at once"""

    graphs: Graphs | None = None

    def context(self) -> AbstractContextManager[object]:
        return nullcontext()

    def send(self, values: Mapping[Place, Any], writes: Container[Place]) -> dict[Place, Any]:
        """The values where the program may work on them: their memory is the caller's, who may not see it change"""
        return {
            place: value.clone() if isinstance(value, torch.Tensor) and place in writes else value
            for place, value in values.items()
        }

    def receive(self, results: Sequence[Any]) -> list[Any]:
        """The results, with their tensors on the host"""
        return [*results]


class Staged:
    """
    Memory of the host for the tensors of one direction, as far as the budget has a share for it. It is pinned where a
    GPU is to copy them; a test has ordinary memory, and the same shares.
    """

    def __init__(self, budget: PinnedBudget, *, pinned: bool, most: int = MOST_STAGED_BYTES) -> None:
        self._budget = budget
        self._pinned = pinned
        self._most = most
        self._memory: torch.Tensor | None = None

    @property
    def bytes(self) -> int:
        return 0 if self._memory is None else len(self._memory)

    def like(self, tensors: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """A place for each tensor, with its type and shape; none where there is no room, no share, or no tensor"""
        plan = plan_staging([None if tensor is None else tensor.nbytes for tensor in tensors], self._most)
        size = capacity(plan.bytes, self.bytes, self._most)
        if size > self.bytes:
            # first the old memory, so that its share counts as well
            self._memory = None
            self._memory = self._with_share(size)
        return [self._view(tensor, offset) for tensor, offset in zip(tensors, plan.offsets, strict=True)]

    def close(self) -> None:
        """Gives up the memory; what shows it keeps it"""
        self._memory = None

    def _with_share(self, size: int) -> torch.Tensor | None:
        """Nothing where there is no share: the next batch asks again"""
        share = self._budget.ask(size)
        if share is None:
            return None
        # a tensor that is made in inference mode could not be written to outside of it
        with torch.inference_mode(mode=False):
            memory = torch.empty(size, dtype=torch.uint8, pin_memory=self._pinned)
        # tensors and arrays that show a part of it are views: all of them keep the storage, and nothing else
        weakref.finalize(memory.untyped_storage(), share.give_back).atexit = False
        return memory

    def _view(self, tensor: torch.Tensor | None, offset: int | None) -> torch.Tensor | None:
        if tensor is None or offset is None or self._memory is None:
            return None
        return self._memory[offset : offset + tensor.nbytes].view(tensor.dtype).view(tensor.shape)


class Lane:
    """What one instance has on its device. Without a stream it does the same on the CPU, which is for tests"""

    def __init__(self, device: torch.device, budget: PinnedBudget, *, most: int = MOST_STAGED_BYTES) -> None:
        on_gpu = device.type == "cuda"
        self.device = device
        self.stream = streams_of(device.index).take() if on_gpu else None
        self.graphs: Graphs | None = None
        self._most = most
        self._budget = budget
        self._inputs = Staged(budget, pinned=on_gpu, most=most)

    def context(self) -> AbstractContextManager[object]:
        """Inside, PyTorch works on the lane's stream"""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def send(self, values: Mapping[Place, Any], _writes: Container[Place] = ()) -> dict[Place, Any]:
        """The values with their tensors on the device, where the stream puts them in time"""
        staged = self.stage(values)
        return {
            place: value.to(self.device, non_blocking=True) if isinstance(value, torch.Tensor) else value
            for place, value in staged.items()
        }

    def stage(self, values: Mapping[Place, Any]) -> dict[Place, Any]:
        """The values with their tensors in pinned memory, as far as there is room: valid until the next batch"""
        tensors = [value if isinstance(value, torch.Tensor) else None for value in values.values()]
        staged = zip(values.items(), self._inputs.like(tensors), strict=True)
        return {place: value if room is None else room.copy_(value) for (place, value), room in staged}

    def receive(self, results: Sequence[Any]) -> list[Any]:
        """The results with their tensors on the host, once all work on the stream is done"""
        here = [result if self._is_on_stream(result) else None for result in results]
        came = list(results)
        rooms = Staged(self._budget, pinned=self.stream is not None, most=self._most).like(here)
        for index, (result, room) in enumerate(zip(here, rooms, strict=True)):
            if room is not None:
                came[index] = room.copy_(result, non_blocking=True)
        self.wait()
        return [value.cpu() if isinstance(value, torch.Tensor) else value for value in came]

    def _is_on_stream(self, result: object) -> bool:
        """Others, and those without an order in memory, are copied by themselves"""
        return isinstance(result, torch.Tensor) and result.device == self.device and result.layout == torch.strided

    def wait(self) -> None:
        """Until the stream has done everything; other threads of Python go on"""
        if self.stream is not None:
            self.stream.synchronize()

    def close(self) -> None:
        """Gives up everything; no batch runs any more"""
        self.graphs = None
        self._inputs.close()
        if self.stream is not None:
            streams_of(self.device.index).give_back(self.stream)
            self.stream = None


class Lanes:
    """Those of all instances that share an engine: a batch takes one, and gives it back"""

    def __init__(self, device: torch.device, count: int, budget: PinnedBudget) -> None:
        self._host = Host() if device.type == "cpu" else None
        self.own = () if self._host else tuple(Lane(device, budget) for _ in range(count))
        self._free: queue.SimpleQueue[Host | Lane] = queue.SimpleQueue()
        for lane in self.own:
            self._free.put(lane)

    def take(self) -> Host | Lane:
        """Waits while each has a batch, which no instance ever does: there is one for each"""
        return self._host or self._free.get()

    def give_back(self, lane: Host | Lane) -> None:
        if lane is not self._host:
            self._free.put(lane)

    def close(self) -> None:
        """No batch runs any more"""
        for lane in self.own:
            lane.close()
