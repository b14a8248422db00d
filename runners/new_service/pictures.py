"""A service that says what a picture shows, for a model that takes one and scores classes"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .folder import Names, Written, fill, literal

if TYPE_CHECKING:
    from .model import Described

__all__ = ["written"]

_COLOURS = {
    1: ("decode", "[None, None]", "[None, :, :, None]"),
    3: ("decode_rgb", ".transpose(2, 0, 1)[None]", "[None]"),
}
"""By the channels of a picture: what reads it, and what brings its channels to the front or to the end"""


def written(model: Described, names: Names, *, is_sample: bool) -> Written | None:
    """None for a model that does not take one picture of a known size, in colours or grey, and score classes"""
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        return None
    (taken,), (scores,) = model.inputs, model.outputs
    size = _size(taken.shape)
    if size is None or len(scores.shape) != 2 or {taken.datatype, scores.datatype} != {"FP32"}:
        return None
    channels, height, width, is_first = size
    decode, first, last = _COLOURS[channels]
    values = {
        "service": names.service,
        "model": literal(model.name),
        "input": literal(taken.name),
        "output": literal(scores.name),
        "decode": decode,
        "width": str(width),
        "height": str(height),
        "shape": f"float32 {[1, *taken.shape[1:]]}",
        "arranged": f"small{first if is_first else last}",
        "classes": '("red", "green", "blue")' if is_sample else "()",
        "expected": 'next(iter(answer)) == "blue"' if is_sample else "answer",
    }
    return Written(
        files={
            "service.py": fill("picture/service.py.txt", values),
            "preprocessing/pictures.py": fill("picture/pictures.py.txt", values),
            "test_service.py": fill("picture/test_service.py.txt", values),
        },
        packages=("pillow",),
        ask="curl -F picture=@blue.png localhost:3000/classify",
        copied=("picture/blue.png",),
    )


def _size(shape: tuple[int, ...]) -> tuple[int, int, int, bool] | None:
    """Channels, height, width, and whether the channels come first"""
    if len(shape) != 4 or shape[0] not in {-1, 1}:
        return None
    for is_first in (True, False):
        channels, height, width = shape[1:] if is_first else (shape[3], *shape[1:3])
        if channels in _COLOURS and height > 0 and width > 0:
            return channels, height, width, is_first
    return None
