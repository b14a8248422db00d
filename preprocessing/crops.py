"""Lines cut out of a page, upright and of one height, as the models `orientation` and `lines` take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from .pages import normalised

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

__all__ = ["Corners", "Crop", "cut", "for_orientation", "for_recogniser", "upright"]

Corners = np.ndarray[tuple[int, int], np.dtype[np.float32]]
"""[4, 2]: x, y on the page, clockwise from where the line begins above"""

HEIGHT = 48
WIDTHS = (*range(64, 640, 32), *range(640, 1280, 64), *range(1280, 3841, 128))
"""
A crop is filled up to the next of these, so that crops of many pages share batches. What is filled costs as much as
what is read: one column of twenty, where a few sizes would make it one of five.
"""
ORIENTATION_SIZE = (192, 48)
SURE = 0.9
"""Lines stand upright as a rule"""
UPWARDS = 1.5
"""Heights by widths; what is higher runs down the page, or upwards, which its orientation tells"""
SHORTER_SIDE, LONGER_SIDE = 4 * HEIGHT, 2 * WIDTHS[-1]
"""Of a crop; more pixels than four times its own the recogniser does not see"""


class Crop(NamedTuple):
    """A line by itself, left to right"""

    image: Image.Image
    corners: Corners


def cut(page: Image.Image, corners: Corners) -> Crop:
    """A rectangle that may be turned, with no more pixels than the recogniser looks at"""
    upper_left, upper_right, lower_right, lower_left = corners
    width, height = (float(np.hypot(*(one - upper_left))) for one in (upper_right, lower_left))
    scale = min(1.0, SHORTER_SIDE / max(1.0, min(width, height)), LONGER_SIDE / max(width, height, 1.0))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    order = (upper_left, lower_left, lower_right, upper_right)
    places = [float(number) for corner in order for number in corner]
    line = page.transform(size, Image.Transform.QUAD, places, Image.Resampling.BICUBIC)
    if height < UPWARDS * width:
        return Crop(line, corners)
    return Crop(line.transpose(Image.Transpose.ROTATE_90), np.roll(corners, -1, 0))


def for_orientation(crop: Crop) -> Floats:
    """float32 [1, 3, 48, 192]"""
    return _filled(crop.image, *ORIENTATION_SIZE)[0]


def upright(crop: Crop, shares: Floats) -> Crop:
    """The same where it stands upright, by what `orientation` answers: [1, 2]"""
    if shares[0, 1] <= SURE:
        return crop
    return Crop(crop.image.transpose(Image.Transpose.ROTATE_180), np.roll(crop.corners, 2, 0))


def for_recogniser(crop: Crop) -> tuple[Floats, float]:
    """float32 [1, 3, 48, W], and the share of W that the line takes"""
    needed = _length(crop.image)
    return _filled(crop.image, next((width for width in WIDTHS if width >= needed), WIDTHS[-1]), HEIGHT)


def _filled(line: Image.Image, width: int, height: int) -> tuple[Floats, float]:
    """Of that size; what the line leaves free is grey"""
    own = min(width, _length(line))
    filled = np.zeros((1, 3, height, width), np.float32)
    filled[0, :, :, :own] = normalised(np.asarray(line.resize((own, height), Image.Resampling.BILINEAR)))
    return filled, own / width


def _length(line: Image.Image) -> int:
    """At the height of the models"""
    return max(1, -(-HEIGHT * line.width // line.height))
