"""
From the picture of handwritten digits to what the model `digits` takes, and from its logits to the digits.

The model learned from scikit-learn's digits: bitmaps of 32x32 pixels in which a digit fills the height, reduced to 8x8
by the share of ink in each block of 4x4. `one` and `many` make the same of a picture. Paper and pen are told apart by
one threshold, so the light on the picture must be even.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from preprocessing.components import Components, components, connect
from runners.uploads import UnreadableImage

if TYPE_CHECKING:
    import numpy.typing as npt

    Grey = npt.NDArray[np.float32]
    Images = npt.NDArray[np.float32]
    Indices = npt.NDArray[np.int64]

__all__ = ["MAX_DIGITS", "Box", "answer", "many", "one"]

MAX_DIGITS = 256
SIDE = 8
ONE_SIDE = 256
PAGE_SIDE = 1536
"""Larger pictures are made smaller first, which bounds the work and takes away noise"""
LEAST_CONTRAST = 32
"""Grey levels between paper and pen; a picture with less has nothing drawn on it"""
SPECK_SHARE = 0.05
"""Of the area of the largest part of a digit: what is smaller is dust or noise"""
DUST_HEIGHT = 0.1
"""Of the height of a page's typical digit, as all that follow; what is smaller, and as narrow, is dust or noise"""
DIGIT_HEIGHT = 0.4
FRAGMENT_HEIGHT = 0.7
"""What is lower may be part of a digit, such as the bar of a 5"""
FRAGMENT_GAP = 0.25
DIGIT_HEIGHT_AT_MOST = 1.4
LINE_OVERLAP = 0.5
"""Of the height of the lower of two neighbours in a line"""


class Box(NamedTuple):
    """Pixels of the picture; `right` and `bottom` are the first ones outside"""

    left: int
    top: int
    right: int
    bottom: int


def one(image: npt.NDArray[np.uint8]) -> Images:
    """float32 [1, 1, 8, 8] from a picture of one digit: of any size, anywhere, dark on light or light on dark"""
    ink = _ink(_smaller(image, _factor(image, ONE_SIDE)))
    parts = components(ink >= 0.5)
    if not len(parts.areas):
        raise UnreadableImage("expected a digit, found nothing drawn on the image")
    kept = np.flatnonzero(parts.areas >= SPECK_SHARE * parts.areas.max())
    return _fit(ink, parts, kept)[None, None]


def many(image: npt.NDArray[np.uint8]) -> tuple[list[Box], Images]:
    """
    The digits of a page, dark on light or light on dark: where they are, and float32 [N, 1, 8, 8]. Line by line, each
    from left to right. Digits that touch each other are taken for one.
    """
    factor = _factor(image, PAGE_SIDE)
    ink = _ink(_smaller(image, factor))
    parts = components(ink >= 0.5)
    groups = _groups(parts)
    boxes = np.array([_around(parts.boxes[group]) for group in groups]).reshape(-1, 4)
    order = _reading_order(boxes)
    images = [_fit(ink, parts, groups[digit]) for digit in order]
    height, width = image.shape
    on_page = np.minimum(boxes * factor, [width, height, width, height])
    found = [Box(*map(int, on_page[digit])) for digit in order]
    return found, np.array(images, np.float32).reshape(-1, 1, SIDE, SIDE)


def answer(logits: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """The digits, int64 [N], and how probable each of the ten is, float32 [N, 10], from logits [N, 10]"""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return logits.argmax(axis=1), powers / powers.sum(axis=1, keepdims=True)


def _factor(image: npt.NDArray[np.uint8], side: int) -> int:
    longest: int = max(image.shape)
    return -(-longest // side)


def _smaller(image: npt.NDArray[np.uint8], factor: int) -> Grey:
    """Blocks of factor × factor pixels become one; at the right and at the bottom a block may be smaller"""
    return np.asarray(Image.fromarray(image).reduce(factor), np.float32)


def _ink(grey: Grey) -> Grey:
    """0 where paper is and 1 where ink is, give or take the noise; all 0 where the contrast is too low"""
    border = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    threshold = _threshold(grey)
    dark_on_light = np.median(border) > threshold
    light = grey > threshold
    if light.all() or not light.any():
        return np.zeros_like(grey)
    inked = light != dark_on_light
    paper = np.median(grey[~inked])
    # most strokes are paler at their edges than in their middle
    pen = np.quantile(grey[inked], 0.25 if dark_on_light else 0.75)
    if abs(pen - paper) < LEAST_CONTRAST:
        return np.zeros_like(grey)
    return np.asarray((grey - paper) / (pen - paper), np.float32)


def _threshold(grey: Grey) -> float:
    """Otsu's: the level that leaves the least variance within the two classes"""
    counts = np.bincount(grey.astype(np.int64).ravel(), minlength=256).astype(np.float64)
    levels = np.arange(256)
    below, below_sum = np.cumsum(counts), np.cumsum(counts * levels)
    above, above_sum = below[-1] - below, below_sum[-1] - below_sum
    apart = below_sum / np.maximum(below, 1) - above_sum / np.maximum(above, 1)
    between = below * above * apart**2
    # two flat classes leave a range of equally good levels: its middle
    return float(np.flatnonzero(between >= between.max() * (1 - 1e-9)).mean()) + 0.5


def _groups(parts: Components) -> list[Indices]:
    """The parts of each digit"""
    if not len(parts.areas):
        return []
    heights = parts.boxes[:, 3] - parts.boxes[:, 1]
    widths = parts.boxes[:, 2] - parts.boxes[:, 0]
    by_height = np.argsort(heights)
    # half of the ink is in parts that are lower: dust does not count, however much of it there is
    ink = np.cumsum(parts.areas[by_height])
    typical = heights[by_height[np.searchsorted(ink, ink[-1] / 2)]]
    kept = np.flatnonzero(np.maximum(heights, widths) > DUST_HEIGHT * typical)
    if len(kept) > 4 * MAX_DIGITS:
        raise UnreadableImage(f"expected a page with at most {MAX_DIGITS} digits, found {len(kept)} marks on it")
    numbers = connect(len(kept), *_fragments(parts.boxes[kept], int(typical)))
    groups = [kept[numbers == number] for number in range(int(numbers.max()) + 1)]
    tops_and_bottoms = [_around(parts.boxes[group])[[1, 3]] for group in groups]
    digits = [
        group
        for group, (top, bottom) in zip(groups, tops_and_bottoms, strict=True)
        if bottom - top >= DIGIT_HEIGHT * typical
    ]
    if len(digits) > MAX_DIGITS:
        raise UnreadableImage(f"expected a page with at most {MAX_DIGITS} digits, found {len(digits)}")
    return digits


def _fragments(boxes: Indices, typical: int) -> tuple[Indices, Indices]:
    """Each part that is too low for a digit, with the nearest part that it would be a digit with"""
    starts, ends = boxes[:, :2], boxes[:, 2:]
    gaps = np.maximum(starts[:, None] - ends[None], starts[None] - ends[:, None]).max(axis=2)
    heights = np.maximum(ends[:, None, 1], ends[None, :, 1]) - np.minimum(starts[:, None, 1], starts[None, :, 1])
    possible = (gaps <= FRAGMENT_GAP * typical) & (heights <= DIGIT_HEIGHT_AT_MOST * typical)
    np.fill_diagonal(possible, val=False)
    fragments = np.flatnonzero((ends - starts)[:, 1] < FRAGMENT_HEIGHT * typical)
    fragments = fragments[possible[fragments].any(axis=1)]
    nearest = np.where(possible, gaps, np.iinfo(np.int64).max)[fragments].argmin(axis=1)
    return fragments, nearest


def _around(boxes: Indices) -> Indices:
    return np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])


def _reading_order(boxes: Indices) -> list[int]:
    """From left to right each digit goes on the line whose last digit is beside it, so a line may rise or fall"""
    lines: list[list[int]] = []
    for digit in np.argsort(boxes[:, 0], kind="stable"):
        shares = [_beside(boxes[line[-1]], boxes[digit]) for line in lines]
        best = int(np.argmax(shares)) if shares else 0
        if shares and shares[best] >= LINE_OVERLAP:
            lines[best].append(int(digit))
        else:
            lines.append([int(digit)])
    lines.sort(key=lambda line: float(boxes[line][:, [1, 3]].mean()))
    return [digit for line in lines for digit in line]


def _beside(one: Indices, other: Indices) -> float:
    """The share of the lower one's height that both have in common"""
    common = min(one[3], other[3]) - max(one[1], other[1])
    return float(common / min(one[3] - one[1], other[3] - other[1]))


def _fit(ink: Grey, parts: Components, kept: Indices) -> Grey:
    """The kept parts alone as 8x8 shares of ink: as high as the square and in its middle, squeezed where too wide"""
    left, top, right, bottom = _around(parts.boxes[kept])
    cut = (slice(top, bottom), slice(left, right))
    labels = parts.labels[cut]
    # what surrounds a part is kept with it: the edge of a stroke is lighter than its middle
    own = np.where((labels == 0) | np.isin(labels, kept + 1), ink[cut], 0)
    height, width = own.shape
    down = np.linspace(0, height, SIDE + 1)
    across = width / 2 + np.linspace(-0.5, 0.5, SIDE + 1) * max(height, width)
    shares = _overlap(down, height) @ own @ _overlap(across, width).T
    return np.clip(shares, 0, 1).astype(np.float32)


def _overlap(edges: npt.NDArray[np.float64], length: int) -> npt.NDArray[np.float64]:
    """[bins, pixels]: the share of each bin, which reaches from an edge to the next, that each pixel covers"""
    pixels = np.arange(length)
    starts, ends = edges[:-1, None], edges[1:, None]
    common = np.minimum(ends, pixels + 1) - np.maximum(starts, pixels)
    shares: npt.NDArray[np.float64] = np.maximum(common, 0) / (ends - starts)
    return shares
