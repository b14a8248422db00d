"""Where something of a PDF's page is: in points of the page as it was written, and in pixels as it is shown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pypdfium2 as pdfium

    Floats = npt.NDArray[np.float64]

__all__ = ["Place"]


class Place:
    """scale: pixels by point"""

    def __init__(self, page: pdfium.PdfPage, scale: float) -> None:
        width, height = page.get_size()
        self.width, self.height = math.ceil(width * scale), math.ceil(height * scale)
        self.box = page.get_bbox()
        self._begin, self._size = np.array(self.box[:2]), np.array(self.box[2:]) - self.box[:2]
        self._quarters = page.get_rotation() // 90

    def corners(self, box: Floats, quarters: int) -> npt.NDArray[np.float32]:
        """Pixels [4, 2] of a box in points, clockwise from the upper left one of what is turned by so many quarters"""
        left, bottom, right, top = box
        corners = np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
        across, up = ((np.roll(corners, -quarters, 0) - self._begin) / self._size).T
        for _ in range(self._quarters):
            across, up = up, 1 - across
        return np.stack([across * self.width, (1 - up) * self.height], 1).astype(np.float32)

    def points(self, corners: Floats, width: int, height: int) -> Floats:
        """Of pixels [N, 2] of the page, shown that large"""
        across, down = (corners / (width, height)).T
        up = 1 - down
        for _ in range(self._quarters):
            across, up = 1 - up, across
        placed: Floats = np.stack([across, up], 1) * self._size + self._begin
        return placed
