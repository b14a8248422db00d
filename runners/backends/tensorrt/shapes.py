"""Shapes of several tensors in one text, as trtexec has them: X:1x3x224x224,Y:1x8"""

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import ConfigInvalid, EngineFailed
from ...integers import integer

__all__ = ["Shapes", "dims", "read_shapes", "shapes_text"]

Shapes = Mapping[str, tuple[int, ...]]


def read_shapes(text: str, subject: str) -> Shapes:
    """By the names of the tensors; `subject` is what an error is about"""
    shapes: dict[str, tuple[int, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        # a name may have colons
        name, colon, dims = part.rpartition(":")
        numbers = [integer(dim) for dim in dims.split("x")]
        if not colon or not name or any(number is None or number < 0 for number in numbers) or name in shapes:
            raise ConfigInvalid(
                f"{subject}: expected NAME:DIMS with commas between them, as X:1x3x224x224,Y:1x8, got '{part}'"
            )
        shapes[name] = tuple(number for number in numbers if number is not None)
    return shapes


def shapes_text(shapes: Shapes) -> str:
    """The same, back"""
    return ",".join(f"{name}:{'x'.join(map(str, dims))}" for name, dims in shapes.items())


def dims(shape: Any, why: Callable[[], str]) -> tuple[int, ...]:  # noqa: ANN401 - of one library or the other
    """Of TensorRT's own, which says how many it has, and each by its place"""
    try:
        return tuple(int(shape[index]) for index in range(len(shape)))
    except ValueError:
        raise EngineFailed(f"TensorRT cannot tell a shape: {why()}") from None
