"""Lines cut out of a page, upright and of one height, as the models `orientation` and `lines` take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from .pages import normalised

if TYPE_CHECKING:
    import numpy.typing as npt

    from .pages import Pixels

    Corners = npt.NDArray[np.float32]
    """[4, 2]: x, y on the page, clockwise from where the line begins above"""
    Floats = npt.NDArray[np.float32]

__all__ = ["Crop", "cut", "for_orientation", "for_recogniser", "upright"]

HEIGHT = 48
WIDTHS = (160, 320, 480, 640, 960, 1280, 1920, 2560, 3840)
"""A crop is filled up to the next of these, so that crops of many pages share batches"""
ORIENTATION_SIZE = (192, 48)
SURE = 0.9
"""Lines stand upright as a rule"""
UPWARDS = 1.5
"""Heights by widths; what is higher is a line that runs upwards"""


class Crop(NamedTuple):
    """A line by itself, left to right"""

    image: Image.Image
    corners: Corners


def cut(page: Pixels, corners: npt.NDArray[np.float32]) -> list[Crop]:
    """corners: [N, 4, 2], of rectangles that may be turned"""
    image = Image.fromarray(page)
    return [_cut(image, one) for one in corners]


def _cut(page: Image.Image, corners: Corners) -> Crop:
    upper_left, upper_right, lower_right, lower_left = corners
    width = max(1, round(float(np.hypot(*(upper_right - upper_left)))))
    height = max(1, round(float(np.hypot(*(lower_left - upper_left)))))
    order = (upper_left, lower_left, lower_right, upper_right)
    places = [float(number) for corner in order for number in corner]
    line = page.transform((width, height), Image.Transform.QUAD, places, Image.Resampling.BICUBIC)
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
