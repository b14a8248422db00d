"""
A page as the model `detector` takes it, and as lines are cut out of it.

Which pixels belong to text is asked of a page of a bounded size; the letters are read where they have more pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]
    """[height, width, 3], red, green and blue"""

__all__ = ["normalised", "prepared"]

SHORT_SIDE, LONG_SIDE, MOST_ENLARGED = 736, 2000, 4
"""A page whose shorter side is less is made larger, so that small letters are found; a longer one is made smaller"""
MOST_SIDE = 4000
"""Of the page that lines are cut out of: letters of books then have all the pixels that the recogniser looks at"""
STEP = 32
"""The detector halves a page five times"""


def prepared(page: Pixels) -> tuple[Pixels, npt.NDArray[np.float32]]:
    """The page that lines are cut out of, and what the detector takes"""
    height, width = page.shape[:2]
    scale = MOST_SIDE / max(height, width)
    if scale < 1:
        page = _resized(page, (max(1, round(width * scale)), max(1, round(height * scale))))
    return page, for_detector(page)


def for_detector(page: Pixels) -> npt.NDArray[np.float32]:
    """float32 [1, 3, H, W], the whole page, with its proportions as far as sides of multiples of 32 allow"""
    height, width = page.shape[:2]
    scale = min(max(SHORT_SIDE / min(height, width), 1), MOST_ENLARGED)
    scale = min(scale, LONG_SIDE / max(height, width))
    return normalised(_resized(page, (_side(width * scale), _side(height * scale))))[None]


def normalised(pixels: Pixels) -> npt.NDArray[np.float32]:
    """float32 [3, H, W] within -1..1, blue first, as the models of this reader were trained"""
    planes = pixels[:, :, ::-1].transpose(2, 0, 1).astype(np.float32)
    planes *= 2 / 255
    planes -= 1
    return planes


def _resized(page: Pixels, size: tuple[int, int]) -> Pixels:
    image = Image.fromarray(page)
    return page if image.size == size else np.asarray(image.resize(size, Image.Resampling.BILINEAR))


def _side(length: float) -> int:
    return max(STEP, round(length / STEP) * STEP)
