"""
One instance: what the core calls for each batch.

`execute` puts a batch into the streams of the GPU and returns; the answer is waited for on another thread, while the
next batch is copied already. Two batches are on their way at most, each with buffers of its own.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...errors import KushiError
from .arrays import bits_of
from .batch import Batch
from .library import LOGGER
from .profiles import choose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .batch import Lanes
    from .buffers import Buffers
    from .context import Context
    from .plan import PlanTensor

__all__ = ["TensorRTEngine"]


class TensorRTEngine:
    """The weights are those of the plan on this GPU, whatever the number of instances"""

    concurrent = False
    answers_later = True

    def __init__(
        self,
        name: str,
        lanes: Lanes,
        contexts: Sequence[Context],
        buffers: Sequence[Buffers],
        *,
        inputs: Sequence[PlanTensor],
        outputs: Sequence[PlanTensor],
    ) -> None:
        """inputs, outputs: in the order of the configuration, as the core gives and takes them"""
        self._name = name
        self._lanes = lanes
        self._contexts = {context.profile: context for context in contexts}
        self._plan = contexts[0].plan
        self._buffers = buffers
        self._inputs = inputs
        self._outputs = outputs
        self._turn = 0

    def execute(self, inputs: Sequence[Any], wanted: Sequence[bool]) -> Batch:
        """Begins a batch"""
        self._lanes.gpu.enter()
        LOGGER.begin()
        arrays = {
            tensor.name: bits_of(array, tensor.datatype) for tensor, array in zip(self._inputs, inputs, strict=True)
        }
        shapes = {name: array.shape for name, array in arrays.items()}
        values = {t.name: tuple(map(int, arrays[t.name].ravel())) for t in self._inputs if t.values}
        context = self._contexts[choose(self._plan, self._contexts, shapes, values, self._name)]
        batch = Batch(self._lanes, context, self._buffers[self._turn], self._outputs, wanted)
        try:
            batch.begin(arrays, self._turn)
        except BaseException:
            # what is on its way already uses these buffers, which the next batch gets: the others are not free yet
            self._lanes.finish()
            raise
        self._turn = (self._turn + 1) % len(self._buffers)
        return batch

    def __del__(self) -> None:
        """What TensorRT has made is freed behind this, on the GPU that the thread has entered"""
        with suppress(KushiError):
            self._lanes.gpu.enter()
