"""One row of zeros through a model as it is loaded: how long it takes, and whether it gives what it should"""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import ConfigInvalid, EngineFailed
from ...repository.messages import DataType, ModelConfig, ModelInput
from ...repository.tensors import fits, model_dims, protocol_type
from .compiler import NotCompiledError
from .datatypes import torch_type
from .engine import Plan, TorchEngine
from .names import Place
from .values import MismatchError

__all__ = ["SIZES", "Trial", "attempt", "run_zeros"]

_LOG = logging.getLogger(__name__)
_RUNS = 5
_ENOUGH_SECONDS = 1.0
"""After this time no further run begins: a model that takes so long is not a short one"""
_MOST_ELEMENTS = 16 * 1024 * 1024
"""Inputs that have more together are not tried: such a model takes long anyway"""
SIZES = (32, 1)
"""Tried in turn for dimensions that may vary: not so small that a long model looks short, then what any model takes"""
_TYPES = {"bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64", "object": "BYTES"}


@dataclass(frozen=True)
class Trial:
    """A run that went well"""

    seconds: float
    sizes: Sequence[int]
    """That of all dimensions that may vary, and smaller ones"""


def attempt(engine: TorchEngine, config: ModelConfig, plan: Plan) -> Trial | None:
    """
    The best of some runs, after one that also shows the outputs to be those of the configuration; nothing where the
    model refuses such inputs
    """
    wanted = [True] * len(config.output)
    failure = ""
    for index, size in enumerate(SIZES):
        shapes = [_shape(config, tensor, size) for tensor in config.input]
        elements = sum(map(math.prod, shapes))
        if elements > _MOST_ELEMENTS:
            failure = _too_many(elements)
            continue
        values = _values(config, plan, shapes)
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
        except NotCompiledError as error:
            raise _not_compiled(config, None if config.max_batch_size == 0 else 1, error) from None
        except EngineFailed as error:
            failure = str(error)
            continue
        _check(config, outputs)
        return Trial(seconds, SIZES[index:])
    _LOG.warning("'%s' cannot be tried with zeros: %s", config.name, failure)
    return None


def run_zeros(engine: TorchEngine, config: ModelConfig, plan: Plan, rows: int | None, sizes: Sequence[int]) -> None:
    """
    One batch of so many rows, or fewer where they would be too much, which compiles the model for it. `sizes`: those
    with which it may work, none where it never does: after some failures PyTorch's compiler gives a model up.
    """
    # three stand for any larger number: PyTorch compiles once for all of them
    least = min(rows or 1, 3)
    failure = "it cannot be tried with zeros"
    for size in sizes:
        shapes = [_shape(config, tensor, size) for tensor in config.input]
        elements = sum(map(math.prod, shapes))
        if least * elements > _MOST_ELEMENTS:
            failure = _too_many(least * elements)
            continue
        if rows is not None:
            fitting = min(rows, _MOST_ELEMENTS // max(elements, 1))
            shapes = [[fitting, *shape[1:]] for shape in shapes]
        try:
            engine.run(_values(config, plan, shapes), [True] * len(config.output))
        except NotCompiledError as error:
            raise _not_compiled(config, rows, error) from None
        except EngineFailed as error:
            failure = str(error)
            continue
        return
    _LOG.warning(
        "'%s' is not compiled for %s at load, so that the first request waits for the compiler: %s",
        *(config.name, _zeros_of(rows), failure),
    )


def _not_compiled(config: ModelConfig, rows: int | None, error: Exception) -> ConfigInvalid:
    return ConfigInvalid(f"unable to load model '{config.name}', it cannot be compiled for {_zeros_of(rows)}: {error}")


def _zeros_of(rows: int | None) -> str:
    return "zeros" if rows is None else f"{rows} rows of zeros"


def _too_many(elements: int) -> str:
    return f"its inputs have {elements} elements, at most {_MOST_ELEMENTS} are tried"


def _values(config: ModelConfig, plan: Plan, shapes: Sequence[Sequence[int]]) -> dict[Place, Any]:
    return dict(zip(plan.input_places, map(_zeros, config.input, shapes), strict=True))


def _timed(engine: TorchEngine, values: Mapping[Place, Any], wanted: Sequence[bool]) -> float:
    started = time.perf_counter()
    engine.run(values, wanted)
    return time.perf_counter() - started


def _shape(config: ModelConfig, tensor: ModelInput, size: int) -> list[int]:
    dims = model_dims(tensor)
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
        dims = [*model_dims(tensor)]
        if config.max_batch_size > 0 and shape[:1] != [1]:
            raise ConfigInvalid(
                f"unable to load model '{config.name}', output '{tensor.name}' has shape {shape} for one row, expected "
                "1 in its first dimension: set max_batch_size to 0 if the model takes no batches"
            )
        row = shape[config.max_batch_size > 0 :]
        # clients see a scalar as [1]
        if (shape == [] and dims == [1]) or fits(row, dims):
            continue
        said = f"output '{tensor.name}' has shape {row} without the batch, the configuration says {dims}"
        if len(row) != len(dims):
            raise ConfigInvalid(f"unable to load model '{config.name}', {said}")
        # its size may depend on the data
        _LOG.warning("'%s' with zeros: %s, and requests for which it is so fail", config.name, said)
