"""What an image may cost, in one table, and what is handed from the reader of its file to its decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import UnreadableImage

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LIMITS", "MAX_MEGAPIXELS", "Limits", "Reduced", "malformed"]

MAX_MEGAPIXELS = 24.0
"""What a good camera takes"""


@dataclass(frozen=True)
class Limits:
    """Each has its bomb in tests/unit/uploads/test_image_bombs.py"""

    file_bytes: int = 64 * 1024 * 1024
    decoded_bytes: int = 176_000_000
    """What decoding takes, the file and all copies of the pixels that a decoder keeps"""
    scans: int = 128
    """Of a JPEG. Programs that look for the smallest file write some 20"""
    scanned_pixels: int = 400_000_000
    """Of a JPEG, in all of its scans: 16 of the largest image"""
    table_bytes: int = 65_536
    """Of a JPEG, before its pixels; most have 1000"""
    parts: int = 65_536
    """Chunks of PNG and WebP, segments of JPEG, blocks before the first frame of a GIF"""
    tags: int = 256
    """Of a TIFF or of EXIF"""
    tiles: int = 65_536
    """Or strips, of a TIFF"""


LIMITS = Limits()


@dataclass(frozen=True)
class Reduced:
    """The first frame of an image"""

    kind: str
    width: int
    height: int
    pieces: Sequence[memoryview | bytes]
    """One after the other, they are a file that holds what is needed to draw it and nothing else"""
    decoded_bytes: int
    """What its decoder takes besides the file, for grey levels"""
    orientation: int | None = None
    """As EXIF has it"""
    coded_pixels: int = 0
    """Of tiles or strips that reach beyond the image"""
    colour_bytes: int = 0
    """What its decoder takes more where it makes colours"""

    def check(self, max_megapixels: float, *, colours: bool = False) -> None:
        pixels = max_megapixels * 1e6
        size = f"a {self.kind} of {self.width} × {self.height} pixels"
        if not 0 < self.width * self.height <= pixels:
            raise UnreadableImage(f"expected at most {max_megapixels:g} megapixels, got {size}")
        # those at the edges may reach beyond it by most of their size
        if self.coded_pixels > 2 * pixels:
            raise UnreadableImage(
                f"expected at most {2 * max_megapixels:g} megapixels in tiles or strips, got {size} with "
                f"{self.coded_pixels / 1e6:.1f}"
            )
        # who allows more pixels allows what they take
        most = int(LIMITS.decoded_bytes * max(1, max_megapixels / MAX_MEGAPIXELS))
        # the levels that are answered come on top
        levels = self.width * self.height
        taken = (
            sum(map(len, self.pieces)) + self.decoded_bytes + (3 * levels + self.colour_bytes if colours else levels)
        )
        if taken > most:
            raise UnreadableImage(
                f"expected an image that takes at most {most // 10**6} MB to decode, got {size} that takes "
                f"{taken // 10**6}"
            )


def malformed() -> UnreadableImage:
    return UnreadableImage("the image is truncated or malformed")
