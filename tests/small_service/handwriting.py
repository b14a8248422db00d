"""One digit of each kind from scikit-learn's data set, of those that the served model was not trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["handwritten"]

_ROWS = (
    "004bf800 00dgbd70 03gc0480 06g50480 07900970 04a02f20 01gcea00 004ee100",
    "001afb70 005gggb0 006ggg60 00cggc00 02ggg600 02cgc000 009gg700 003cg200",
    "009ggd10 00cdeg70 00006g40 0000de10 001ag600 007g8000 02fgc700 009egg20",
    "029fgf20 0bb59g30 00009c00 00006f10 00000e90 00000cc0 00536f70 00cgf910",
    "0008f100 001ed110 00af3fb0 07g71g80 09gdeg50 01afge00 0001ga00 000af400",
    "00ccef10 01fb6500 06fc4000 06b8d600 00001d00 00000930 02616e30 01bgd800",
    "001ba000 00da0000 03d00000 05b00000 05ecc700 00gc5ba0 00ab4ac0 001cgc30",
    "02agc000 0cecg500 0204g710 004fgga0 01ggc520 00fc1000 01e40000 00g30000",
    "006eg600 06gg8f00 07eece00 00dag600 004ga000 00bdg200 00f5f400 008gf100",
    "01egf400 04g9bf30 06g18g20 02eafg60 003b8f50 00001g50 0033bf10 00dge400",
)
"""Ink in sixteenths; g is sixteen"""


def handwritten(digit: int) -> npt.NDArray[np.float32]:
    """8x8, 0 = paper, 1 = ink"""
    sixteenths = [["0123456789abcdefg".index(level) for level in row] for row in _ROWS[digit].split()]
    return np.array(sixteenths, np.float32) / np.float32(16)
