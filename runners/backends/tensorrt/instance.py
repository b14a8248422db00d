"""Makes one instance: its streams, a context for each of its profiles, its buffers, and the graphs that are wanted"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...errors import EngineFailed, InvalidInput, KushiError
from .arrays import dtype_of
from .batch import Lanes
from .buffers import Buffers
from .context import Context
from .cuda import DeviceMemory, Stream
from .engine import TensorRTEngine
from .graphs import GraphShapes, graph_shapes
from .library import LOGGER, trt
from .profiles import choose
from .staging import lay_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...repository.messages import ModelConfig
    from ..pinned import PinnedBudget
    from .opening import OpenPlan
    from .options import InstancePlace, TensorRTOptions
    from .plan import Plan

__all__ = ["make_instance"]

_LOG = logging.getLogger(__name__)
_BATCHES = 2
_ANY = -1


def make_instance(
    opened: OpenPlan,
    plan: Plan,
    config: ModelConfig,
    options: TensorRTOptions,
    *,
    place: InstancePlace,
    profiles: Sequence[int],
    budget: PinnedBudget,
) -> TensorRTEngine:
    """On the GPU of its place, whose plan is open"""
    engine, owner = opened.engine, opened.owner
    owner.enter()
    LOGGER.begin()
    compute = Stream(owner, options.priority)
    aside = Stream(owner, options.priority) if options.copies_outputs_aside else None
    lanes = Lanes(owner, Stream(owner, options.priority), compute, aside)
    scratch = DeviceMemory(owner, max(engine.get_device_memory_size_for_profile_v2(profile) for profile in profiles))
    contexts = [_context(engine, plan, profile, compute, scratch) for profile in profiles]
    sizes, growing = _sizes(contexts)
    for context in contexts:
        context.grow(growing)
    layout = lay_out(sizes.items())
    buffers = [Buffers(owner, layout, growing, budget, busy_wait=options.busy_wait) for _ in range(_BATCHES)]
    if options.graphs:
        _record(config, plan, contexts, buffers, place.name)
    _LOG.info(
        "instance '%s' is on GPU %d with profiles %s: %.1f MB for what it computes, %d times %.1f MB for its tensors",
        place.name,
        owner.number,
        ", ".join(map(str, profiles)),
        scratch.size / 1e6,
        _BATCHES,
        layout.total_bytes / 1e6,
    )
    return TensorRTEngine(
        place.name,
        lanes,
        contexts,
        buffers,
        inputs=[plan.tensor(tensor.name) for tensor in config.input],
        outputs=[plan.tensor(tensor.name) for tensor in config.output],
    )


def _context(engine: trt.ICudaEngine, plan: Plan, profile: int, stream: Stream, scratch: DeviceMemory) -> Context:
    make = partial(_native, engine, profile, stream, scratch)
    return Context(profile, plan, make, make(), stream, scratch)


def _native(engine: trt.ICudaEngine, profile: int, stream: Stream, scratch: DeviceMemory) -> trt.IExecutionContext:
    """`scratch` is that of all contexts with this stream: of these one is executed at a time"""
    native = engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
    if native is None:
        raise EngineFailed(f"unable to create TensorRT context: {LOGGER.why()}")
    try:
        taken = native.set_optimization_profile_async(profile, stream.address)
    except RuntimeError:
        # how TensorRT's module tells it
        taken = False
    if not taken:
        raise EngineFailed(f"Can not set the specified optimization profile {profile}[{profile}]: {LOGGER.why()}")
    stream.synchronize()
    native.set_device_memory(scratch.address, scratch.size)
    return native


def _sizes(contexts: Sequence[Context]) -> tuple[dict[str, int], list[str]]:
    """The bytes that each tensor takes at most, and the outputs whose sizes follow from data"""
    plan = contexts[0].plan
    sizes: dict[str, int] = {}
    growing: dict[str, None] = {}
    for context in contexts:
        most = {tensor.name: tensor.ranges[context.profile].most for tensor in plan.inputs}
        # TensorRT tells sizes of outputs for inputs that have their shapes, and their values where these are shapes
        values = [
            (tensor.name, np.array(tensor.values[context.profile].most, dtype_of(tensor.datatype)))
            for tensor in plan.inputs
            if tensor.values
        ]
        shapes = context.shape(most, {name: array.ctypes.data for name, array in values})
        for tensor in plan.tensors:
            if tensor.on_host:
                continue
            if tensor.is_input:
                size = tensor.bytes_of(most[tensor.name])
            else:
                size = context.native.get_max_output_size(tensor.name)
                if _ANY in shapes[tensor.name] or size < tensor.bytes_of(shapes[tensor.name]):
                    growing[tensor.name] = None
            sizes[tensor.name] = max(sizes.get(tensor.name, 0), size)
    return {name: size for name, size in sizes.items() if name not in growing}, list(growing)


def _record(
    config: ModelConfig, plan: Plan, contexts: Sequence[Context], buffers: Sequence[Buffers], instance: str
) -> None:
    if buffers[0].growing or any(tensor.on_host for tensor in plan.tensors):
        _LOG.warning("instance '%s' has no CUDA graphs: shapes of its tensors follow from values", instance)
        return
    for wanted in graph_shapes(config, plan):
        taken = [context for context in contexts if _takes(context, wanted, instance)]
        if not taken:
            _LOG.warning("instance '%s': no profile takes the shapes of a CUDA graph, %s", instance, dict(wanted.most))
        for context in taken:
            try:
                context.record(wanted, buffers)
            except KushiError as error:
                _LOG.warning("instance '%s' has no CUDA graph for %s: %s", instance, dict(wanted.most), error)


def _takes(context: Context, wanted: GraphShapes, instance: str) -> bool:
    try:
        choose(context.plan, [context.profile], wanted.most, {}, instance)
    except InvalidInput:
        return False
    return True
