"""Files that clients upload: digits and words as images, and what only looks like one."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO

import httpx
import numpy as np
from PIL import Image, ImageDraw

from tests.small_service.handwriting import handwritten

__all__ = ["bomb", "encoded", "page", "picture", "upload", "written"]


def picture(digit: int, size: int = 120) -> Image.Image:
    """Dark on light, with a margin"""
    return page([digit], size)


def written(text: str, size: int = 20) -> Image.Image:
    """Lines of print, dark on light, with a margin"""
    lines = text.split("\n")
    sheet = Image.new("RGB", (2 * size + max(map(len, lines)) * size * 2 // 3, (2 + 2 * len(lines)) * size), "white")
    for place, line in enumerate(lines):
        ImageDraw.Draw(sheet).text((size, (1.25 + 2 * place) * size), line, fill=(20, 20, 30), font_size=size)
    return sheet


def page(digits: list[int], size: int = 120) -> Image.Image:
    """One line of digits"""
    sheet = np.full((2 * size, (2 * len(digits) + 1) * size), 240, np.uint8)
    for place, digit in enumerate(digits):
        large = Image.fromarray(handwritten(digit)).resize((size, size), Image.Resampling.BICUBIC)
        left = (2 * place + 1) * size
        ink = (240 - 220 * np.asarray(large).clip(0, 1)).astype(np.uint8)
        sheet[size // 2 : size // 2 + size, left : left + size] = ink
    return Image.fromarray(sheet)


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    file = BytesIO()
    image.save(file, kind)
    return file.getvalue()


def bomb() -> bytes:
    """A PNG of 1 KB that says it has 2.5 thousand million pixels"""
    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(100_000))), (b"IEND", b""))
    )


def upload(client: httpx.Client, path: str, data: bytes, kind: str = "image/png") -> httpx.Response:
    return client.post(path, files={"image": ("picture", data, kind)})
