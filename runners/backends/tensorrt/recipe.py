"""
What a plan is built with, and which profile follows from it. A recipe crosses to the process that builds as JSON, and
its text is a part of the name under which a plan is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import prod

from ...errors import ConfigInvalid
from .plan import Range, Shape

__all__ = ["Recipe", "profile_of", "values_of"]

_ANY = -1
_WHAT = ("min", "opt", "max")
Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class Recipe:
    """
    Shapes are full ones, or the values of a shape tensor. `batch` has the least, the best and the most rows where none
    are stated
    """

    least: Shapes = field(default_factory=dict)
    best: Shapes = field(default_factory=dict)
    most: Shapes = field(default_factory=dict)
    batch: tuple[int, int, int] | None = None
    version_compatible: bool = False
    hardware_compatible: bool = False
    optimization_level: int | None = None
    workspace_bytes: int | None = None
    tf32: bool = True

    def to_json(self) -> str:
        """The same recipe has the same text"""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of_json(cls, text: str) -> Recipe:
        """Back from there"""
        plain = json.loads(text)
        for key in ("least", "best", "most"):
            plain[key] = {name: tuple(dims) for name, dims in plain[key].items()}
        plain["batch"] = plain["batch"] and tuple(plain["batch"])
        return cls(**plain)


def profile_of(recipe: Recipe, inputs: Shapes, known: Mapping[str, object] | None = None) -> dict[str, Range]:
    """
    The profile for a network with these inputs; those without a dimension of any size need none. `known` are the inputs
    that shapes may name, where these are not all
    """
    _check_names(recipe, known or inputs)
    profile = {}
    for name, shape in inputs.items():
        given = _given(recipe, name)
        if _ANY not in shape and not given:
            continue
        made = [_bound(name, shape, given, index, recipe) for index in range(len(_WHAT))]
        _check(name, shape, made)
        profile[name] = Range(*made)
    return profile


def values_of(recipe: Recipe, inputs: Shapes) -> dict[str, Range]:
    """The values that shape tensors of these shapes take in the profile: as trtexec, stated where others have shapes"""
    profile = {}
    for name, shape in inputs.items():
        given = _given(recipe, name)
        if _ANY in shape:
            raise ConfigInvalid(
                f"input '{name}' is a shape tensor of the shape {list(shape)}, and a profile has a value for each "
                "of its elements: its length must be fixed. Export the model with a shape tensor of fixed length"
            )
        count = prod(shape)
        if not given:
            example = f"{name}:{'x'.join(['64'] * max(count, 1))}"
            raise ConfigInvalid(
                f"input '{name}' is a shape tensor, and nothing says which values it takes: state its smallest, "
                f"its best and its largest ones where other inputs have min, opt and max shapes, as {example}"
            )
        made = [_stated(given, index) for index in range(len(_WHAT))]
        for values in made:
            if len(values) != count:
                raise ConfigInvalid(
                    f"input '{name}' is a shape tensor of the shape {list(shape)}: expected {count} values, got "
                    f"{list(values)}"
                )
        _check_order(f"values of input '{name}'", made)
        profile[name] = Range(*made)
    return profile


def _check_names(recipe: Recipe, inputs: Mapping[str, object]) -> None:
    for what, shapes in zip(_WHAT, (recipe.least, recipe.best, recipe.most), strict=True):
        if strange := sorted(set(shapes) - set(inputs)):
            raise ConfigInvalid(
                f"the {what} shapes name the input '{strange[0]}', the model has {', '.join(sorted(inputs))}"
            )


def _given(recipe: Recipe, name: str) -> dict[str, Shape]:
    stated = zip(_WHAT, (recipe.least, recipe.best, recipe.most), strict=True)
    return {what: shapes[name] for what, shapes in stated if name in shapes}


def _stated(given: Mapping[str, Shape], index: int) -> Shape:
    """As trtexec: one that is not stated is one that is"""
    if (what := _WHAT[index]) in given:
        return given[what]
    return given.get("opt") or given.get("max") or given["min"]


def _bound(name: str, shape: Shape, given: Mapping[str, Shape], index: int, recipe: Recipe) -> Shape:
    if given:
        return _stated(given, index)
    if recipe.batch and _ANY not in shape[1:]:
        return (recipe.batch[index], *shape[1:])
    raise ConfigInvalid(
        f"input '{name}' has the shape {list(shape)}, and nothing says how large its dimensions of any size get: state "
        f"its min, opt and max shapes, as {name}:{'x'.join('8' if dim == _ANY else str(dim) for dim in shape)}"
    )


def _check(name: str, shape: Shape, made: list[Shape]) -> None:
    for dims in made:
        fits = len(dims) == len(shape) and all(own in {_ANY, dim} for own, dim in zip(shape, dims, strict=True))
        if not fits:
            raise ConfigInvalid(f"input '{name}' has the shape {list(shape)}, which {list(dims)} does not fit")
    _check_order(f"shapes of input '{name}'", made)


def _check_order(subject: str, made: list[Shape]) -> None:
    least, best, most = made
    if not all(low <= middle <= high for low, middle, high in zip(least, best, most, strict=True)):
        raise ConfigInvalid(
            f"the {subject} are not in order: expected min {list(least)} <= opt {list(best)} <= max {list(most)}"
        )
