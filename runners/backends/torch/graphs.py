"""
CUDA graphs of one instance: captured at load, one for each number of rows, and executed in the place of the program.

A graph reads its inputs and writes its results in memory that stays the same. All graphs of an instance share it: they
are on one stream, and what one has left there is on its way to the host before the next begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from .datatypes import torch_type
from .memory import CAPTURES

if TYPE_CHECKING:
    from .device import Lane
    from .graph_plan import GraphPlan
    from .names import Place

__all__ = ["Capture", "CaptureError", "Graphs", "Results", "capture_on"]

Results = Sequence[Any] | Mapping[str, Any]
Work = Callable[[], Results]
Capture = Callable[[Work], tuple[Callable[[], object], Results]]
"""Makes of work something that repeats it, with the results that the repetition writes to"""

_ABANDONED: list[torch.cuda.CUDAGraph] = []
"""PyTorch's pinned memory knows them for ever: they must stay where they are, empty"""
_WARM_UPS = 3
"""Runs before a graph is captured: libraries choose their kernels, and TorchScript is optimized"""


class CaptureError(Exception):
    """A graph that cannot be captured, with the reason"""


class Graphs:
    """Those of a lane, while it has the batch"""

    def __init__(
        self,
        plan: GraphPlan,
        places: Sequence[Place],
        lane: Lane,
        run: Callable[[Mapping[Place, Any]], Results],
        capture: Capture,
    ) -> None:
        self._plan = plan
        self._places = places
        self._lane = lane
        # the largest number of rows; the other graphs read the first ones of them
        self._inputs = {
            place: torch.zeros((plan.sizes[-1], *row), dtype=torch_type(datatype), device=lane.device)
            for place, row, datatype in zip(places, plan.rows, plan.types, strict=True)
        }
        self._captured: dict[int, tuple[Callable[[], object], Results]] = {}
        # the largest first: what it needs is enough for the others
        for size in reversed(plan.sizes):
            given = {place: memory[:size] for place, memory in self._inputs.items()}
            try:
                self._captured[size] = capture(lambda given=given: run(given))  # type: ignore[misc]  # bound as it is now
                continue
            except Exception as error:  # noqa: BLE001 - whatever the model made PyTorch raise
                text = f"a CUDA graph of {size} rows cannot be captured: {error}"
            # outside, since the other error holds what the model has taken of the GPU
            raise CaptureError(text)

    def size_for(self, values: Mapping[Place, Any]) -> int | None:
        """The rows of the graph that executes these inputs, if there is one"""
        return self._plan.size_for([values[place].shape if place in values else None for place in self._places])

    def run(self, size: int, values: Mapping[Place, Any]) -> Results:
        """The results of the graph of that size, valid until the next one runs"""
        rows = size
        for place, value in self._lane.stage(values).items():
            rows, memory = len(value), self._inputs[place]
            memory[:rows].copy_(value, non_blocking=True)
            # what earlier requests have left there is not shown to the model
            if rows < size:
                memory[rows:size].zero_()
        repeat, results = self._captured[size]
        repeat()
        return results if rows == size else _cut(results, size, rows)


def capture_on(lane: Lane) -> Capture:
    """Captures on the lane's stream; other threads go on meanwhile"""
    pool = torch.cuda.graph_pool_handle()

    def capture(work: Work) -> tuple[Callable[[], object], Results]:
        for _ in range(_WARM_UPS):
            work()
        lane.wait()
        graph = torch.cuda.CUDAGraph()
        captured = torch.cuda.graph(graph, pool=pool, stream=lane.stream, capture_error_mode="thread_local")
        with CAPTURES.one():
            try:
                with captured:
                    results = work()
            except BaseException:
                _abandon(graph, pool, lane.device)
                _end_random(lane)
                raise
        return graph.replay, results

    return capture


def _end_random(lane: Lane) -> None:
    """
    A capture that was not valid leaves the GPU's generator of random numbers as if it went on, before PyTorch 2.13: it
    would refuse every model that draws some. The end of one that is valid, of next to nothing, ends that as well.
    """
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    try:
        anything = torch.zeros(1, device=lane.device)
        with torch.cuda.graph(graph, pool=pool, stream=lane.stream, capture_error_mode="thread_local"):
            anything.zero_()
    except Exception:  # noqa: BLE001 - the GPU may be lost, and the first error says so
        _abandon(graph, pool, lane.device)


def _abandon(graph: torch.cuda.CUDAGraph, pool: tuple[int, int], device: torch.device) -> None:
    """
    Ends what a capture has begun that was not valid. Its end in PyTorch stops before PyTorch's memory hears of it: that
    would go on asking the graph, and give nothing back until the process ends.
    """
    _ABANDONED.append(graph)
    try:
        # there where the capture had an end, and the work in it failed
        graph.pool()
    except RuntimeError:
        with suppress(AttributeError, RuntimeError):
            torch._C._cuda_endAllocateToPool(device.index, pool)  # noqa: SLF001 - there is no public way
            torch._C._cuda_releasePool(device.index, pool)  # noqa: SLF001
    graph.reset()


def _cut(results: Results, size: int, rows: int) -> Results:
    """The first rows of each result that has one for each row of the batch"""

    def cut(result: Any) -> Any:  # noqa: ANN401 - a tensor, or what else a model gives
        return result[:rows] if isinstance(result, torch.Tensor) and result.shape[:1] == (size,) else result

    if isinstance(results, Mapping):
        return {key: cut(result) for key, result in results.items()}
    return [cut(result) for result in results]
