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

    def corners(self, boxes: Floats, quarters: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """
        Pixels [N, 4, 2] of boxes in points, clockwise from the upper left one

        boxes: [N, 4], left, bottom, right and top
        quarters: [N], of a turn, by which what is in a box is turned
        """
        left, bottom, right, top = boxes.T
        corners = np.stack([left, top, right, top, right, bottom, left, bottom], 1).reshape(-1, 4, 2)
        first = (np.arange(4) + quarters[:, None]) % 4
        corners = np.take_along_axis(corners, first[:, :, None], 1)
        across, up = np.moveaxis((corners - self._begin) / self._size, 2, 0)
        for _ in range(self._quarters):
            across, up = up, 1 - across
        return np.stack([across * self.width, (1 - up) * self.height], 2).astype(np.float32)

    def points(self, corners: Floats, width: int, height: int) -> Floats:
        """Of pixels [N, 2] of the page, shown that large"""
        across, down = (corners / (width, height)).T
        up = 1 - down
        for _ in range(self._quarters):
            across, up = 1 - up, across
        placed: Floats = np.stack([across, up], 1) * self._size + self._begin
        return placed
