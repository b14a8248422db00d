"""Pages whose words are known: rendered here, the same as a bad camera sees them, and Debian's manuals as pixels.

The first two are drawn with the fonts of matplotlib, from the text of the licence, by a seed. The manuals
are PDFs of Debian's packages (`apt-get install bzip2-doc valgrind nettle-dev libtasn1-doc`); what their pages say
themselves is the truth, and their words are read of pixels.
"""

from __future__ import annotations

import gzip
import io
import random
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from benchmarks.options import ROOT
from runners.uploads import documents

__all__ = ["Page", "degraded", "manuals", "rendered"]

Pixels = npt.NDArray[np.uint8]

SEED: Final = 20261128
PAPER: Final = (1654, 2339)
"""A4 at 200 dots per inch"""
MARGIN: Final = 130
SIZES: Final = (24, 28, 34, 42)
FONTS: Final = ("DejaVuSans", "DejaVuSerif", "DejaVuSansMono", "DejaVuSans-Bold")
LEAST_WORDS: Final = 120
"""Of a manual's page"""
MANUALS: Final = Path("/usr/share/doc")


@dataclass(frozen=True)
class Page:
    name: str
    png: bytes
    words: tuple[str, ...]


def rendered(count: int) -> list[Page]:
    return [Page(f"rendered {number}", _png(page), words) for number, (page, words) in enumerate(_drawn(count))]


def degraded(count: int) -> list[Page]:
    """The same pages"""
    chosen = np.random.default_rng(SEED)
    return [
        Page(f"degraded {number}", _spoilt(page, chosen), words) for number, (page, words) in enumerate(_drawn(count))
    ]


def manuals(count: int) -> list[Page]:
    """As many of each, from all over it"""
    files = sorted(file for file in MANUALS.rglob("*.pdf*") if re.fullmatch(r".+\.pdf(\.gz)?", file.name))
    found = [pages for file in files if (pages := _of_manual(file, count))]
    if not found:
        raise SystemExit(f"no PDFs with text in {MANUALS}: apt-get install bzip2-doc valgrind nettle-dev libtasn1-doc")
    each = -(-count // len(found))
    return [page for pages in found for page in pages[:each]][:count]


def _of_manual(file: Path, most: int) -> list[Page]:
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    numbers = list(range(documents.count_pages(data)))
    random.Random(SEED).shuffle(numbers)
    pages = list[Page]()
    for number in numbers:
        text = documents.text(data, number)
        words = tuple(word.text for line in text.lines for word in line.words) if text else ()
        # letters that these models do not know would count against all of them
        if len(words) >= LEAST_WORDS and all(word.isascii() for word in words):
            name = f"{file.name.removesuffix('.gz')} {number + 1}"
            pages.append(Page(name, _png(Image.fromarray(documents.pixels(data, number))), words))
        if len(pages) == most:
            break
    return pages


def _drawn(count: int) -> list[tuple[Image.Image, tuple[str, ...]]]:
    chosen = random.Random(SEED)
    words = _prose()
    pages = list[tuple[Image.Image, tuple[str, ...]]]()
    for number in range(count):
        begin = chosen.randrange(len(words) - 2000)
        pages.append(
            _page(words[begin:], SIZES[number % len(SIZES)], chosen.choice(FONTS), columns=1 + number % 3 // 2)
        )
    return pages


def _page(words: list[str], size: int, font_name: str, *, columns: int) -> tuple[Image.Image, tuple[str, ...]]:
    from matplotlib import get_data_path  # noqa: PLC0415 - in the environment of benchmarks alone

    font = ImageFont.truetype(Path(get_data_path(), "fonts/ttf", f"{font_name}.ttf"), size)
    page = Image.new("RGB", PAPER, "white")
    pen = ImageDraw.Draw(page)
    width = (PAPER[0] - MARGIN * (columns + 1)) // columns
    letters = int(width / pen.textlength("abcdefghij", font=font) * 10)
    lines = textwrap.wrap(" ".join(words), letters, break_long_words=False, break_on_hyphens=False)
    lines = [line for line in lines if pen.textlength(line, font=font) <= width]
    high = (PAPER[1] - 2 * MARGIN) // (size * 3 // 2)
    shown = list[str]()
    for column in range(columns):
        for row, line in enumerate(lines[column * high : (column + 1) * high]):
            # a paragraph ends now and then
            if row % 9 != 8:
                place = (MARGIN + column * (width + MARGIN), MARGIN + row * (size * 3 // 2))
                pen.text(place, line, fill=(25, 25, 35), font=font)
                shown += line.split()
    return page, tuple(shown)


def _prose() -> list[str]:
    """A text that does not change, over and over, so that there is enough of it"""
    return (ROOT / "LICENSE").read_text(encoding="utf-8").split() * 3


def _spoilt(page: Image.Image, chosen: np.random.Generator) -> bytes:
    """Askew, in perspective, in uneven light, out of focus, with noise, as a JPEG of few bytes"""
    width, height = page.size
    page = page.rotate(float(chosen.uniform(-3, 3)), Image.Resampling.BICUBIC, fillcolor="white")
    off = chosen.uniform(-0.012, 0.012, 8) * width
    corners = np.array([0, 0, 0, height, width, height, width, 0]) + off
    page = page.transform(
        page.size, Image.Transform.QUAD, corners.tolist(), Image.Resampling.BICUBIC, fillcolor="white"
    )
    page = page.resize((round(width * 0.72), round(height * 0.72)), Image.Resampling.BILINEAR)
    page = page.filter(ImageFilter.GaussianBlur(float(chosen.uniform(0.6, 1.1))))
    pixels = np.asarray(page, np.float32)
    (left, right), (top, bottom) = chosen.uniform(0.55, 1, 2), chosen.uniform(0.75, 1, 2)
    across = np.linspace(left, right, pixels.shape[1])[None, :, None]
    down = np.linspace(top, bottom, pixels.shape[0])[:, None, None]
    seen = pixels * across * down + chosen.normal(0, 9, pixels.shape)
    file = io.BytesIO()
    Image.fromarray(seen.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=40)
    # PNG again: each reader sees the same pixels
    return _png(Image.open(file))


def _png(page: Image.Image) -> bytes:
    file = io.BytesIO()
    page.save(file, "PNG", compress_level=1)
    return file.getvalue()
