"""What config.pbtxt says about running a plan, in the words of Triton's backend"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import ConfigInvalid
from ...repository.messages import ModelConfig, ModelInstanceGroup, ModelOptimizationPolicy
from .. import Placed

__all__ = ["InstancePlace", "TensorRTOptions", "instance_places", "read_options"]

_LOG = logging.getLogger(__name__)
_STRATEGY = "execution_context_allocation_strategy"
_STRATEGIES = ("STATIC", "ON_PROFILE_CHANGE")
_PRIORITIES = {
    ModelOptimizationPolicy.PRIORITY_DEFAULT: 0,
    ModelOptimizationPolicy.PRIORITY_MAX: 1,
    ModelOptimizationPolicy.PRIORITY_MIN: -1,
}


@dataclass(frozen=True)
class TensorRTOptions:
    """Of all instances of a model"""

    priority: int
    """Of the streams: 1 before others, -1 behind them"""
    graphs: bool
    busy_wait: bool
    copies_outputs_aside: bool


@dataclass(frozen=True)
class InstancePlace:
    """One instance, as its group says"""

    name: str
    group: str
    gpu: int
    profiles: tuple[str, ...]
    """As stated"""


def read_options(config: ModelConfig) -> TensorRTOptions:
    """The options of a model, each checked"""
    strategy = config.parameters[_STRATEGY].string_value if _STRATEGY in config.parameters else _STRATEGIES[0]
    if strategy not in _STRATEGIES:
        raise ConfigInvalid(
            f"Invalid value for '{_STRATEGY}': '{strategy}' for model instance '{config.name}'. Supported values are "
            "'STATIC' and 'ON_PROFILE_CHANGE'."
        )
    if strategy != _STRATEGIES[0]:
        _LOG.info(
            "model '%s': '%s' does nothing here: the profiles of an instance share memory", config.name, _STRATEGY
        )
    optimization = config.optimization
    for field in ("gather_kernel_buffer_threshold", "eager_batching"):
        if getattr(optimization, field):
            _LOG.info("model '%s': 'optimization.%s' is always on here and does nothing", config.name, field)
    return TensorRTOptions(
        priority=_PRIORITIES[optimization.priority],
        graphs=optimization.cuda.graphs,
        busy_wait=optimization.cuda.busy_wait_events,
        copies_outputs_aside=optimization.cuda.output_copy_stream,
    )


def instance_places(model: Placed) -> list[InstancePlace]:
    """The instances: all of the configuration, or the one that a process has for itself"""
    instances = list(_instances(model.config))
    return instances if model.instance is None else [instances[model.instance]]


def _instances(config: ModelConfig) -> Iterator[InstancePlace]:
    for group in config.instance_group:
        if group.kind != ModelInstanceGroup.KIND_GPU:
            kind = ModelInstanceGroup.Kind.Name(group.kind)
            raise ConfigInvalid(
                f"instance group {group.name} of model {config.name} has kind {kind}, expected KIND_GPU: TensorRT "
                "computes on GPUs alone"
            )
        gpus = [gpu for gpu in group.gpus for _ in range(group.count)]
        for index, gpu in enumerate(gpus):
            yield InstancePlace(f"{group.name}_{index}", group.name, gpu, tuple(group.profile))
