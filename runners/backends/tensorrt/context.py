"""
An execution context of TensorRT for one profile of one instance, with the graphs for it.

Each graph is recorded of a context of its own, as NVIDIA advises: nothing gives that one other shapes or memory later.
All have the same memory to compute in: they are in one stream, so that one of them computes at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ...errors import EngineFailed
from ..python_engine import ModelFailed
from .buffers import OutputSwitch
from .graphs import GraphShapes, find
from .library import LOGGER, dims

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .buffers import Buffers
    from .cuda import DeviceMemory, Graph, Stream
    from .library import trt
    from .plan import Plan, Shape

__all__ = ["Context", "Recorded"]


@dataclass(frozen=True)
class Recorded:
    """One graph for each of the buffers of an instance"""

    shapes: GraphShapes
    outputs: Mapping[str, Shape]
    """What it writes"""
    graphs: Sequence[Graph]
    contexts: Sequence[Context]
    """Of which they were recorded"""


@dataclass(frozen=True)
class Context:
    """It has one shape for each input at a time; what was launched before keeps its own"""

    profile: int
    plan: Plan
    make: Callable[[], trt.IExecutionContext]
    """Another one of this profile, with this scratch memory"""
    native: trt.IExecutionContext
    stream: Stream
    scratch: DeviceMemory
    """What it computes in: freed behind the context, since it comes after it here"""
    switches: dict[str, OutputSwitch] = field(default_factory=dict)
    """Of outputs whose size follows from data"""
    _recorded: list[Recorded] = field(default_factory=list)

    def shape(self, shapes: Mapping[str, Shape], on_host: Mapping[str, int]) -> dict[str, Shape]:
        """
        Takes the shapes of all inputs, and where those lie that TensorRT reads on the host; answers the shapes of all
        outputs, with -1 where they follow from data
        """
        self._place(on_host)
        for name, shape in shapes.items():
            if not self.native.set_input_shape(name, shape):
                raise EngineFailed(f"TensorRT refuses the shape {list(shape)} of input '{name}': {LOGGER.why()}")
        return {tensor.name: dims(self.native.get_tensor_shape(tensor.name)) for tensor in self.plan.outputs}

    def launch(self, buffers: Buffers, on_host: Mapping[str, int]) -> None:
        """Puts a run of what was shaped into the stream, on these buffers"""
        self._place(buffers.addresses)
        self._place(on_host)
        for name, switch in self.switches.items():
            switch.current = buffers.growing[name]
        if not self.native.execute_async_v3(self.stream.address):
            raise ModelFailed(f"TensorRT execute failure: {LOGGER.why()}")

    def grow(self, names: Sequence[str]) -> None:
        """Sizes of these outputs follow from data. Told once, since TensorRT's module keeps all that it is given"""
        for name in names:
            self.switches[name] = switch = OutputSwitch()
            if not self.native.set_output_allocator(name, switch):
                raise ModelFailed(f"TensorRT refuses the memory of '{name}': {LOGGER.why()}")

    def graph_for(self, shapes: Mapping[str, Shape]) -> Recorded | None:
        """The graph that a batch of these shapes runs with"""
        found = find((recorded.shapes for recorded in self._recorded), shapes)
        return next((recorded for recorded in self._recorded if recorded.shapes is found), None)

    def record(self, wanted: GraphShapes, buffers: Sequence[Buffers]) -> None:
        """Records graphs for these shapes, which the profile takes"""
        contexts = [replace(self, native=self.make(), _recorded=[]) for _ in buffers]
        outputs: dict[str, Shape] = {}
        graphs = []
        for context, own in zip(contexts, buffers, strict=True):
            outputs = context.shape(wanted.most, {})
            # the first run after a change of shapes does what a graph must not have in it
            context.launch(own, {})
            self.stream.synchronize()
            graphs.append(self.stream.record_graph(partial(context.launch, own, {})))
        self._recorded.append(Recorded(wanted, outputs, graphs, contexts))

    def _place(self, addresses: Mapping[str, int]) -> None:
        for name, address in addresses.items():
            if not self.native.set_tensor_address(name, address):
                raise ModelFailed(f"TensorRT refuses the memory of '{name}': {LOGGER.why()}")
