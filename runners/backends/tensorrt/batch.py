"""One batch on its way: into memory that the GPU copies from by itself, over, through the plan, and back"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..python_engine import ModelFailed
from .arrays import answered, dtype_of, put
from .staging import lay_out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from .buffers import Buffers, GrowingOutput
    from .context import Context
    from .cuda import Gpu, Stream
    from .plan import PlanTensor, Shape

__all__ = ["Batch", "Lanes"]


class Lanes:
    """The streams of an instance: inputs are copied beside the run of the batch before; outputs where that is asked"""

    def __init__(self, owner: Gpu, inputs: Stream, compute: Stream, outputs: Stream | None = None) -> None:
        self.gpu = owner
        self.inputs = inputs
        self.compute = compute
        self.outputs = outputs or compute

    def finish(self) -> None:
        """Waits for all that is on its way"""
        for stream in (self.inputs, self.compute, self.outputs):
            stream.synchronize()


class Batch:
    """Begun by the instance, waited for by another thread. The core calls `wait` once"""

    def __init__(
        self, lanes: Lanes, context: Context, buffers: Buffers, outputs: Sequence[PlanTensor], wanted: Sequence[bool]
    ) -> None:
        self._lanes = lanes
        self._context = context
        self._buffers = buffers
        self._outputs = outputs
        self._wanted = wanted
        self._kept: list[NDArray[Any]] = []
        self._lain: dict[str, Shape] = {}
        self._shapes: Mapping[str, Shape] = {}
        self._offsets: Mapping[str, int] = {}
        self._grown: dict[str, tuple[NDArray[Any], Shape]] = {}
        self._host: NDArray[Any]

    def begin(self, arrays: Mapping[str, NDArray[Any]], turn: int) -> None:
        """Puts all of it into the streams; nothing is waited for"""
        context, buffers, lanes = self._context, self._buffers, self._lanes
        plan = context.plan
        shapes = {name: array.shape for name, array in arrays.items()}
        on_host = self._on_host(arrays)
        graph = context.graph_for(shapes)
        self._shapes = context.shape(shapes, on_host)
        inputs = {name: graph.shapes.most[name] if graph else shape for name, shape in shapes.items()}
        inputs = {name: shape for name, shape in inputs.items() if not plan.tensor(name).on_host}
        self._lain = {**inputs, **(graph.outputs if graph else self._shapes)}
        outputs = [o.name for o, asked in zip(self._outputs, self._wanted, strict=True) if asked or o.on_host]
        known = [name for name in outputs if name not in buffers.growing]
        layout = lay_out((name, plan.tensor(name).bytes_of(self._lain[name])) for name in (*inputs, *known))
        self._check_room(layout.sizes)
        address, self._host = buffers.host.room(layout.total_bytes)
        self._offsets = layout.offsets
        for name, shape in inputs.items():
            offset = layout.offsets[name]
            put(arrays[name], self._host[offset:], shape)
            lanes.inputs.copy_to_gpu(buffers.addresses[name], address + offset, layout.sizes[name])
        buffers.filled.record(lanes.inputs)
        lanes.compute.wait_for(buffers.filled)
        if graph:
            graph.graphs[turn].launch(lanes.compute)
        else:
            hosted = {o.name: address + layout.offsets[o.name] for o in self._outputs if o.on_host}
            context.launch(buffers, {**on_host, **hosted})
        buffers.computed.record(lanes.compute)
        lanes.outputs.wait_for(buffers.computed)
        for name in known:
            if not plan.tensor(name).on_host:
                lanes.outputs.copy_to_host(address + layout.offsets[name], buffers.addresses[name], layout.sizes[name])
        for name in outputs:
            if name in buffers.growing:
                self._copy_grown(plan.tensor(name), buffers.growing[name])
        buffers.done.record(lanes.outputs)

    def wait(self) -> list[NDArray[Any] | None]:
        """The outputs that are wanted. They show memory that the next but one batch gets"""
        self._lanes.gpu.enter()
        self._buffers.done.synchronize()
        self._kept.clear()
        asked = zip(self._outputs, self._wanted, strict=True)
        return [self._answer(output) if is_wanted else None for output, is_wanted in asked]

    def _answer(self, output: PlanTensor) -> NDArray[Any]:
        if grown := self._grown.get(output.name):
            block, shape = grown
            return answered(block, output.datatype, shape, shape)
        block = self._host[self._offsets[output.name] :]
        return answered(block, output.datatype, self._shapes[output.name], self._lain[output.name])

    def _copy_grown(self, output: PlanTensor, growing: GrowingOutput) -> None:
        """Its shape is known once the run is launched"""
        size = output.bytes_of(growing.shape)
        address, block = growing.host.room(size)
        self._lanes.outputs.copy_to_host(address, growing.address, size)
        self._grown[output.name] = block, growing.shape

    def _check_room(self, sizes: Mapping[str, int]) -> None:
        for name, size in sizes.items():
            room = self._buffers.sizes.get(name)
            if room is not None and size > room:
                raise ModelFailed(f"'{name}' has {size} bytes, and TensorRT has said that it has {room} at most")

    def _on_host(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, int]:
        """Where the inputs lie that TensorRT reads by itself: in arrays of the batch's own"""
        addresses = {}
        for tensor in self._context.plan.inputs:
            if tensor.on_host:
                own = arrays[tensor.name].astype(dtype_of(tensor.datatype), order="C", copy=True)
                self._kept.append(own)
                addresses[tensor.name] = own.ctypes.data
        return addresses
