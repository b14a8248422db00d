"""What a plan is asked: random numbers or samples, of shapes and in as many rows as its profile takes"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidInput
from ..samples import Samples, draw, read_arrays

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from ..backends.tensorrt.plan import Plan, Shape
    from ..backends.tensorrt.recipe import Recipe
    from ..samples import Row

__all__ = ["check_rows", "drawn_for", "least_rows"]

_ANY = -1


def least_rows(plan: Plan) -> int:
    """Of a batch: as few as its first profile takes"""
    return max(
        (tensor.ranges[0].least[0] for tensor in plan.inputs if tensor.ranges and tensor.shape[:1] == (_ANY,)),
        default=1,
    )


def check_rows(samples: Path, recipe: Recipe) -> None:
    """Refuses a file with fewer rows than the stated shapes take; where these do not tell, that is for later"""
    for name, array in read_arrays(samples).items():
        least = next((shapes[name] for shapes in (recipe.least, recipe.best, recipe.most) if name in shapes), ())
        if array.ndim == len(least) and not _may_be_shapes(array) and 0 < len(array) < least[0]:
            raise InvalidInput(
                f"samples '{samples}': '{name}' has {len(array)} rows, and the plan takes at least {least[0]} at a "
                "time, as --min says: give more rows, or a smaller --min"
            )


def _may_be_shapes(array: NDArray[Any]) -> bool:
    """One for each row of a shape tensor, for which values are stated: of as many dimensions as there are values"""
    return array.dtype.kind in "iu" and array.shape[1:] in {(), (2,)}


def drawn_for(
    recipe: Recipe, config: Mapping[str, Any], metadata: Mapping[str, Any], *, batching: bool, rows: int
) -> Samples:
    """Dimensions of any size, and values of shape tensors, are the most frequent ones of the recipe"""
    shaped = [{**tensor, "shape": _shape(tensor, recipe)} for tensor in metadata["inputs"]]
    drawn = draw({**metadata, "inputs": shaped}, batching=batching, rows=rows)
    values = {tensor["name"]: _best(recipe, tensor["name"]) for tensor in config["input"] if tensor["is_shape_tensor"]}
    return Samples([_valued(row, values) for row in drawn.rows], drawn=True)


def _shape(tensor: Mapping[str, Any], recipe: Recipe) -> list[int]:
    own = [int(dim) for dim in tensor["shape"]]
    best = _best(recipe, tensor["name"])
    return [one if dim == _ANY else dim for dim, one in zip(own, best, strict=True)] if len(best) == len(own) else own


def _best(recipe: Recipe, name: str) -> Shape:
    return next((shapes[name] for shapes in (recipe.best, recipe.most, recipe.least) if name in shapes), ())


def _valued(row: Row, values: Mapping[str, Shape]) -> Row:
    return {
        name: np.array(values[name], array.dtype).reshape(array.shape) if name in values else array
        for name, array in row.items()
    }
