"""One row of zeros through a model as it is loaded: how long it takes, and whether it gives what it should"""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...errors import ConfigInvalid, EngineFailed
from ...repository.messages import DataType, ModelConfig, ModelInput
from ...repository.tensors import protocol_type
from .datatypes import torch_type
from .engine import MismatchError, Plan, TorchEngine
from .names import Place

__all__ = ["Trial", "attempt"]

_LOG = logging.getLogger(__name__)
_RUNS = 5
_ENOUGH_SECONDS = 1.0
"""After this time no further run begins: a model that takes so long is not a short one"""
_MOST_ELEMENTS = 16 * 1024 * 1024
"""Inputs that have more together are not tried: such a model takes long anyway"""
# tried in turn for dimensions that may vary: not so small that a long model looks short, then what any model takes
_VARIABLE_SIZES = (32, 1)
_TYPES = {"bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64", "object": "BYTES"}

Trial = float | None
"""Seconds of one run, or nothing where the model refuses such an input"""


def attempt(engine: TorchEngine, config: ModelConfig, plan: Plan) -> Trial:
    """The best of some runs, after one that also shows the outputs to be those of the configuration"""
    wanted = [True] * len(config.output)
    failure = ""
    for size in _VARIABLE_SIZES:
        shapes = [_shape(config, tensor, size) for tensor in config.input]
        elements = sum(map(math.prod, shapes))
        if elements > _MOST_ELEMENTS:
            failure = f"its inputs have {elements} elements, at most {_MOST_ELEMENTS} are tried"
            continue
        zeros = map(_zeros, config.input, shapes)
        values = dict(zip(plan.input_places, zeros, strict=True))
        try:
            begun = time.perf_counter()
            outputs = engine.run(values, wanted)
            seconds = time.perf_counter() - begun
            for turn in range(_RUNS):
                if time.perf_counter() - begun > _ENOUGH_SECONDS:
                    break
                # the first one was to warm up
                seconds = min(_timed(engine, values, wanted), seconds if turn else math.inf)
        except MismatchError as error:
            raise ConfigInvalid(f"unable to load model '{config.name}': {error}") from None
        except EngineFailed as error:
            failure = str(error)
            continue
        _check(config, outputs)
        return seconds
    _LOG.warning("'%s' cannot be tried with zeros: %s", config.name, failure)
    return None


def _timed(engine: TorchEngine, values: Mapping[Place, Any], wanted: Sequence[bool]) -> float:
    started = time.perf_counter()
    engine.run(values, wanted)
    return time.perf_counter() - started


def _shape(config: ModelConfig, tensor: ModelInput, size: int) -> list[int]:
    dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
    return [1] * (config.max_batch_size > 0) + [dim if dim > 0 else size for dim in dims]


def _zeros(tensor: ModelInput, shape: Sequence[int]) -> Any:  # noqa: ANN401 - a tensor or strings
    if tensor.data_type == DataType.Value("TYPE_STRING"):
        return _strings(shape)
    return torch.zeros(shape, dtype=torch_type(protocol_type(tensor.data_type)))


def _strings(shape: Sequence[int]) -> Any:  # noqa: ANN401 - lists around strings
    return [_strings(shape[1:]) for _ in range(shape[0])] if shape else ""


def _check(config: ModelConfig, outputs: Sequence[Any]) -> None:
    for tensor, output in zip(config.output, outputs, strict=True):
        got = _TYPES.get(output.dtype.name, output.dtype.name.upper())
        expected = protocol_type(tensor.data_type)
        # the engine widens what NumPy does not have
        if got != expected and (got, expected) != ("FP32", "BF16"):
            raise ConfigInvalid(
                f"unable to load model '{config.name}', configuration expects datatype "
                f"{DataType.Name(tensor.data_type)} for output '{tensor.name}', model provides "
                f"TYPE_{'STRING' if got == 'BYTES' else got}"
            )
        shape = list(output.shape)
        if config.max_batch_size > 0 and shape[:1] != [1]:
            raise ConfigInvalid(
                f"unable to load model '{config.name}', output '{tensor.name}' has shape {shape} for one row, expected "
                "1 in its first dimension: set max_batch_size to 0 if the model takes no batches"
            )
