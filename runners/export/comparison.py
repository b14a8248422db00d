"""The exported model, served by an engine, held against the original"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

from ..differences import close, difference
from ..engine import Engine
from ..errors import ConfigInvalid, EngineFailed, KushiError, Unsupported
from ..repository.tensors import shape_text
from ..settings import EngineOptions, LogOptions
from . import Difference, Tolerance
from .original import Original
from .place import Place
from .samples import SIZES
from .tracing import quiet

__all__ = ["compare"]

_QUIET = EngineOptions(exit_on_error=False, log=LogOptions(info=False))
_SOME_ROWS = (1, 2, 5)

_Array = NDArray[Any]


def compare(
    original: Original, staged: Place, place: Place, tolerance: Tolerance
) -> tuple[int, tuple[int, ...], Mapping[str, Difference]]:
    """Maximum batch size, numbers of rows that were compared, and the largest difference of each output"""
    name = place.directory.name
    with quiet():
        engine = Engine(staged.directory.parent, options=_QUIET)
    with engine:
        for error in engine.failures.values():
            raise _unfit(error, staged, place)
        most = int(engine.get_model_config(name)["max_batch_size"])
        sizes = tuple(sorted({*(rows for rows in _SOME_ROWS if rows <= most), *([most] if most else [])}))
        largest = dict.fromkeys(original.output_names, Difference(0.0, 0.0))
        for rows, size in zip(sizes or SIZES, cycle(SIZES), strict=False):
            values = original.samples.draw(rows, size)
            expected = _outputs(original, values)
            _check_repeated(_outputs(original, values), expected, tolerance)
            if sizes and rows > 1:
                _check_rows(_outputs(original, [value[:1] for value in values]), expected, tolerance)
            arrays = (_as_served(_array(value), batching=most > 0) for value in values)
            result = engine.infer(name, dict(zip(original.input_names, arrays, strict=True)))
            for output, wanted in expected.items():
                served = _as_served(wanted, batching=most > 0)
                largest[output] |= _difference(output, np.asarray(result[output]), served, tolerance)
    return most, sizes, largest


def _outputs(original: Original, values: Sequence[torch.Tensor]) -> dict[str, _Array]:
    return dict(zip(original.output_names, map(_array, original.run(values)), strict=True))


def _array(value: torch.Tensor) -> _Array:
    value = value.detach().cpu().contiguous()
    bits = value.dtype is torch.bfloat16
    array: _Array = (value.view(torch.int16) if bits else value).numpy()
    return array.view(ml_dtypes.bfloat16) if bits else array


def _as_served(array: _Array, *, batching: bool) -> _Array:
    """One number for each row, or one alone, is served as a dimension of 1"""
    return array[..., np.newaxis] if array.ndim == int(batching) else array


def _difference(output: str, answered: _Array, wanted: _Array, tolerance: Tolerance) -> Difference:
    if answered.shape != wanted.shape:
        raise EngineFailed(
            f"output '{output}' of the exported model has the shape {shape_text(answered.shape)}, the original's "
            f"{shape_text(wanted.shape)}: nothing was written"
        )
    found = difference(answered, wanted)
    if not close(answered, wanted, tolerance):
        raise EngineFailed(
            f"output '{output}' of the exported model differs from the original's by up to {found.absolute:.1e} "
            f"({found.relative:.1e} of its largest number) in {shape_text(wanted.shape)}, expected at most "
            f"{tolerance.absolute:g} + {tolerance.relative:g} × the original: nothing was written. A model whose "
            "Python code looks at the values of tensors cannot be exported as it is; where such a difference is no "
            "harm, --atol and --rtol allow it"
        )
    return found


def _check_repeated(again: Mapping[str, _Array], first: Mapping[str, _Array], tolerance: Tolerance) -> None:
    for output, expected in first.items():
        if not close(again[output], expected, tolerance):
            raise Unsupported(
                f"output '{output}' is another one each time for the same inputs: a model that draws random numbers "
                "cannot be compared, and is not exported"
            )


def _check_rows(alone: Mapping[str, _Array], together: Mapping[str, _Array], tolerance: Tolerance) -> None:
    """A row must not change with those that other requests bring into its batch"""
    for output, expected in together.items():
        if not close(alone[output][:1], expected[:1], tolerance):
            raise Unsupported(
                f"output '{output}' of a row changes with the other rows of its batch, by up to "
                f"{difference(alone[output][:1], expected[:1]).absolute:.1e}: requests cannot share a batch. "
                "Change the model, or export it without batches: --max-batch-size 0"
            )


def _unfit(error: KushiError, staged: Place, place: Place) -> KushiError:
    """Why an engine does not load it: because of a configuration that was there before, mostly"""
    said = str(error).replace(str(staged.directory), str(place.directory))
    if place.config.exists():
        said = f"the exported model does not fit the configuration that is there: {said}; change that, or remove it"
    return ConfigInvalid(f"{said}: nothing was written")
