"""
From what the model `detector` says of each pixel to the lines of text: rectangles, which may be turned.

The detector marks the middle of a line alone, so that neighbours do not touch; each rectangle grows back by as much as
was taken off when the detector was trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from .components import components

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Points = npt.NDArray[np.int64]
    """[N, 2]: x, y"""

__all__ = ["MOST_LINES", "lines"]

MARKED = 0.3
"""How sure the detector is of a pixel that counts"""
LEAST_CONFIDENCE = 0.5
"""The same of a line, on average over its rectangle"""
MOST_LINES = 1000
GROWTH = 1.6
"""What is added on each side, in areas by circumferences"""
LEAST_SIDE, LEAST_GROWN_SIDE = 3, 5
"""Pixels of the detector: what is smaller is noise"""
MOST_PAGES = 8
"""How often the area of a page what is around lines may cover: those of print do not overlap, and what is drawn may"""


def lines(marks: npt.NDArray[np.float32], width: int, height: int) -> npt.NDArray[np.float32]:
    """
    float32 [N, 4, 2]: the corners of each line as pixels of a page of that size, from its upper left one clockwise, as
    one reads it

    marks: [H, W], the probability of each pixel that it belongs to a line
    """
    mask = marks > MARKED
    mask[:, 1:] |= mask[:, :-1]
    mask[1:] |= mask[:-1]
    scale = width / marks.shape[1], height / marks.shape[0]
    found = [box * scale for outline in _outlines(mask) if (box := _line(outline, marks)) is not None]
    corners = np.asarray(found, np.float32).reshape(-1, 4, 2)
    return np.clip(corners, 0, (width, height), out=corners)


def _outlines(mask: npt.NDArray[np.bool_]) -> Iterator[Points]:
    """Of each part of the mask the first and the last pixel of each row, those of the largest parts first"""
    parts = components(mask)
    sides = parts.boxes[:, 2:] - parts.boxes[:, :2]
    thick = np.flatnonzero((sides.min(1) > LEAST_SIDE) & (parts.areas > LEAST_SIDE * sides.max(1)))
    largest = thick[np.argsort(-parts.areas[thick], kind="stable")[:MOST_LINES]]
    covered = np.cumsum(sides[largest].prod(1))
    for part in largest[covered <= MOST_PAGES * mask.size]:
        left, top, right, bottom = parts.boxes[part]
        own = parts.labels[top:bottom, left:right] == part + 1
        if bottom - top > right - left:
            # as few points as its shorter side has
            yield _ends(own.T, top, left)[:, ::-1]
        else:
            yield _ends(own, left, top)


def _ends(own: npt.NDArray[np.bool_], left: int, top: int) -> Points:
    """[N, 2]: the first and the last pixel of each row"""
    rows = np.arange(own.shape[0]) + top
    first, last = left + own.argmax(1), left + own.shape[1] - 1 - own[:, ::-1].argmax(1)
    return np.stack([np.concatenate([first, last]), np.concatenate([rows, rows])], 1)


def _line(outline: Points, marks: npt.NDArray[np.float32]) -> Floats | None:
    centre, along, sides = _least_rectangle(outline)
    if min(sides) < LEAST_SIDE or _confidence(_corners(centre, along, sides), marks) < LEAST_CONFIDENCE:
        return None
    growth = GROWTH * sides[0] * sides[1] / (sides[0] + sides[1])
    sides = sides + growth
    return _corners(centre, along, sides) if min(sides) >= LEAST_GROWN_SIDE else None


def _least_rectangle(points: Points) -> tuple[Floats, Floats, Floats]:
    """Centre, direction and sides of the smallest rectangle around them: one of its sides lies on one of their hull"""
    hull = _hull(points)
    edges = np.roll(hull, -1, 0) - hull
    lengths = np.hypot(edges[:, 0], edges[:, 1])
    along = edges[lengths > 0] / lengths[lengths > 0, None] if len(hull) > 1 else np.array([[1.0, 0.0]])
    across = np.stack([-along[:, 1], along[:, 0]], 1)
    places = np.stack([along @ hull.T, across @ hull.T])
    low, high = places.min(2), places.max(2)
    least = int(np.prod(high - low, axis=0).argmin())
    middle = (low + high)[:, least] / 2
    centre = middle[0] * along[least] + middle[1] * across[least]
    return centre, along[least], (high - low)[:, least]


def _hull(points: Points) -> Floats:
    """The corners of the smallest convex shape around them, in order (the monotone chain of Andrew)"""
    ordered = sorted(set(map(tuple, points.tolist())))
    if len(ordered) < 3:
        return np.array(ordered, np.float64)
    chains = []
    for row in (ordered, ordered[::-1]):
        chain: list[tuple[int, int]] = []
        for x, y in row:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], (x, y)) <= 0:
                chain.pop()
            chain.append((x, y))
        chains += chain[:-1]
    return np.array(chains, np.float64)


def _turn(one: tuple[int, int], other: tuple[int, int], third: tuple[int, int]) -> int:
    return (other[0] - one[0]) * (third[1] - one[1]) - (other[1] - one[1]) * (third[0] - one[0])


def _corners(centre: Floats, along: Floats, sides: Floats) -> Floats:
    """From the upper left one clockwise; a line is read in the direction that is nearer to the rows of pixels"""
    if abs(along[0]) < abs(along[1]):
        along, sides = np.array([-along[1], along[0]]), sides[::-1]
    if along[0] < 0:
        along = -along
    right = along * sides[0] / 2
    down = np.array([-along[1], along[0]]) * sides[1] / 2
    return np.stack([centre - right - down, centre + right - down, centre + right + down, centre - right + down])


def _confidence(corners: Floats, marks: npt.NDArray[np.float32]) -> float:
    height, width = marks.shape
    left, top = np.clip(np.floor(corners.min(0)).astype(int), 0, (width - 1, height - 1))
    right, bottom = np.clip(np.ceil(corners.max(0)).astype(int), 0, (width - 1, height - 1))
    inside = Image.new("1", (right - left + 1, bottom - top + 1))
    ImageDraw.Draw(inside).polygon([(x - left, y - top) for x, y in corners.astype(int).tolist()], fill=1, outline=1)
    return float(marks[top : bottom + 1, left : right + 1][np.asarray(inside)].mean())
