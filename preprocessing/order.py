"""
The order in which the lines of a page are read: down a column, then down the next.

A page is cut where nothing is written, again and again: between columns where there is a gap from top to bottom, else
at the widest gap between what is above and what is below. A page that lies askew is stood upright first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Indices = npt.NDArray[np.int64]

__all__ = ["in_order"]

COLUMN_GAP = 1.0
"""The least between two columns, by the height of a line"""
LEAST_LINES = 3
"""Of a column: what is less is a row of words that stand apart"""
SAME_ROW = 0.5
"""Of the height of the lower one, that two of a row have in common"""


def in_order(corners: Floats) -> list[int]:
    """Places in [N, 4, 2]"""
    if not len(corners):
        return []
    corners = _upright(corners)
    low, high = corners.min(1), corners.max(1)
    typical = float(np.median(high[:, 1] - low[:, 1]))
    waiting, order = [np.arange(len(corners))], list[int]()
    while waiting:
        block = waiting.pop()
        parts = _columns(block, low, high, COLUMN_GAP * typical) or _bands(block, low, high)
        if parts:
            waiting += reversed(parts)
        else:
            order += _rows(block, low, high)
    return order


def _upright(corners: Floats) -> Floats:
    along = corners[:, 1] - corners[:, 0]
    # around their sum: lines that are upside down lie on both sides of half a turn
    common = np.arctan2(*along.sum(0)[::-1])
    apart = np.arctan2(along[:, 1], along[:, 0]) - common
    angle = float(common + np.median((apart + np.pi) % (2 * np.pi) - np.pi))
    cosine, sine = np.cos(angle), np.sin(angle)
    return corners @ np.array([[cosine, -sine], [sine, cosine]], np.float32)


def _columns(block: Indices, low: Floats, high: Floats, least: float) -> list[Indices]:
    """Left to right; none where the block is not of columns"""
    parts = _apart(block, low[:, 0], high[:, 0], least)
    return parts if len(parts) > 1 and all(len(part) >= LEAST_LINES for part in parts) else []


def _bands(block: Indices, low: Floats, high: Floats) -> list[Indices]:
    """What is above the widest gap and what is below it"""
    ordered = block[np.argsort(low[block, 1], kind="stable")]
    gaps = low[ordered[1:], 1] - np.maximum.accumulate(high[ordered, 1])[:-1]
    if not len(gaps) or gaps.max() <= 0:
        return []
    widest = int(gaps.argmax()) + 1
    return [ordered[:widest], ordered[widest:]]


def _apart(block: Indices, low: Floats, high: Floats, least: float) -> list[Indices]:
    ordered = block[np.argsort(low[block], kind="stable")]
    gaps = low[ordered[1:]] - np.maximum.accumulate(high[ordered])[:-1]
    return np.split(ordered, np.flatnonzero(gaps >= least) + 1)


def _rows(block: Indices, low: Floats, high: Floats) -> list[int]:
    """Of lines that overlap: those beside one another from the left"""
    order, row = list[int](), list[int]()
    for line in block[np.argsort(low[block, 1] + high[block, 1], kind="stable")].tolist():
        if row:
            common = min(high[line, 1], high[row[0], 1]) - max(low[line, 1], low[row[0], 1])
            lower = min(high[line, 1] - low[line, 1], high[row[0], 1] - low[row[0], 1])
            if common < SAME_ROW * lower:
                order, row = [*order, *sorted(row, key=lambda one: low[one, 0])], []
        row.append(line)
    return [*order, *sorted(row, key=lambda one: low[one, 0])]
