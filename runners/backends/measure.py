"""How long a model computes, which decides how many threads it gets where its configuration does not say"""

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from ..errors import EngineFailed
from ..repository.messages import ModelConfig
from ..repository.specification import instances_of
from ..repository.tensors import TensorInfo, model_dims
from ..threads import intra_op_threads
from .cores import cores_for_all

__all__ = ["Measurable", "example_shapes", "measured_seconds", "measured_threads"]

_LOG = logging.getLogger(__name__)
_MEASURED_RUNS = 5
# tried in turn for dimensions that may vary: not so small that a long model looks short, then what any model takes
_VARIABLE_SIZES = (32, 1)


class Measurable(Protocol):
    """A model that can be run on zeros"""

    def measure(self, shapes: Mapping[str, Sequence[int]], runs: int) -> float:
        """Seconds of the best of so many runs; EngineFailed where it takes no such input"""
        ...


def measured_threads(model: Measurable, config: ModelConfig, inputs: Sequence[TensorInfo]) -> int:
    """The threads of an instance; nothing is measured where the cores leave no choice"""
    cores, instances = cores_for_all(config), instances_of(config)
    measured = measured_seconds(model, config, inputs) if cores // instances > 1 else None
    return intra_op_threads(0, measured, instances, cores)


def measured_seconds(model: Measurable, config: ModelConfig, inputs: Sequence[TensorInfo]) -> float | None:
    """Seconds of one run on a single row of zeros, or nothing where the model refuses such an input"""
    for size in _VARIABLE_SIZES:
        try:
            return model.measure(example_shapes(config, inputs, size), _MEASURED_RUNS)
        except EngineFailed as error:
            _LOG.debug("'%s' cannot be measured with %d for variable dimensions: %s", config.name, size, error)
    return None


def example_shapes(
    config: ModelConfig, inputs: Sequence[TensorInfo], size: int = 1, *, rows: int = 1
) -> dict[str, list[int]]:
    """A shape for each input that the model requires: so many rows, and `size` for every dimension that may vary"""
    stated = {tensor.name: model_dims(tensor) for tensor in config.input}
    batch = [rows] if config.max_batch_size > 0 else []
    return {
        info.name: [*batch, *(dim if dim > 0 else size for dim in stated[info.name])]
        if info.dims or info.any_rank
        else []
        for info in inputs
    }
