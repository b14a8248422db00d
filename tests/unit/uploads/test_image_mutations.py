"""
Files of all formats with random damage, decoded in a process that may take no more memory than a bomb of ours.

Its seed is printed: `SEED=… pytest tests/unit/uploads/test_image_mutations.py` does the same again.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image

from tests.serving import ROOT
from tests.unit.uploads.bombs import jpeg_of_scans, saved, tiff_of_jpeg_scans, webp_of_frames, webp_of_trees

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS: Final = float(os.environ.get("SECONDS", "4"))
SIDE: Final = 40
INTERESTING: Final = [b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\xff\xd8", b"\xff\xda", b"\xff\xc2", b"\0\0\0\0"]
INTERESTING_NUMBERS: Final = [0, 1, 2, 0x7F, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF]

_DECODE = """
import json, resource, struct, sys, time
from pathlib import Path
import numpy as np
from runners.uploads import UnreadableImage, images

# as much as no bomb may take, and some: what would take more does not get it
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (512 << 20),) * 2)
read = sys.stdin.buffer
while length := read.read(4):
    data = read.read(struct.unpack("<I", length)[0])
    Path(sys.argv[1]).write_bytes(data)
    began = time.process_time()
    try:
        grey = images.decode(data, max_megapixels=1)
        assert grey.dtype == np.uint8 and grey.ndim == 2 and 0 < grey.size <= 1e6
    except UnreadableImage:
        pass
    assert time.process_time() - began < 10
"""


def files() -> list[bytes]:
    slope = np.add.outer(np.arange(SIDE) * 3, np.arange(SIDE) * 2).astype(np.uint8)
    grey, colours = Image.fromarray(slope), Image.fromarray(np.stack([slope, slope[::-1], slope.T], axis=2))
    clear, palette = colours.convert("RGBA"), colours.convert("P")
    exif = Image.Exif()
    exif[0x0112] = 6
    packings = ["tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"]
    return [
        *[saved(image, "PNG", exif=exif) for image in (grey, colours, clear, palette)],
        saved(Image.fromarray(slope.astype(np.uint16) * 257), "PNG"),
        *[saved(colours, "JPEG", exif=exif, progressive=wanted, quality=90) for wanted in (False, True)],
        saved(colours.convert("CMYK"), "JPEG"),
        jpeg_of_scans(20, SIDE, SIDE, layers=3),
        *[saved(clear, "WEBP", exif=exif, lossless=wanted) for wanted in (False, True)],
        saved(clear, "WEBP", save_all=True, append_images=[clear.rotate(90)]),
        webp_of_frames(5),
        webp_of_trees(20, SIDE),
        saved(palette, "GIF", save_all=True, append_images=[palette.rotate(90)], transparency=3),
        *[saved(image, "BMP") for image in (grey, colours, palette)],
        *[saved(colours, "TIFF", compression=packing, exif=exif) for packing in packings],
        saved(colours, "TIFF"),
        saved(grey.convert("1"), "TIFF", compression="group4"),
        saved(grey.convert("1"), "TIFF", compression="group3"),
        saved(Image.fromarray(slope.astype(np.float32)), "TIFF"),
        tiff_of_jpeg_scans(),
    ]


def mutated(chance: random.Random, originals: list[bytes]) -> Iterator[bytes]:
    while True:
        data = bytearray(chance.choice(originals))
        for _ in range(chance.choice([1, 1, 2, 4, 16])):
            # heads are where decisions are made
            at = chance.randrange(min(len(data), chance.choice([32, 128, 512, len(data)])) or 1)
            match chance.randrange(6):
                case 0:
                    data[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    what = chance.choice(INTERESTING)
                    data[at : at + len(what)] = what
                case 2:
                    size = chance.choice([2, 4])
                    number = chance.choice(INTERESTING_NUMBERS) & (1 << 8 * size) - 1
                    data[at : at + size] = number.to_bytes(size, chance.choice(["little", "big"]))
                case 3:
                    del data[at : at + chance.choice([1, 4, 64])]
                case 4:
                    other = chance.choice(originals)
                    begin = chance.randrange(len(other))
                    data[at:at] = other[begin : begin + chance.choice([4, 64, 1024])]
                case _:
                    data[at:at] = data[at : at + chance.choice([8, 64, 512])] * chance.choice([1, 8])
        yield bytes(data)


def test_whatever_is_damaged_is_read_or_refused_in_bounded_memory(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print("SEED", seed)  # noqa: T201 - whoever finds something wants it again
    last = tmp_path / "last"
    chance = random.Random(seed)
    command = [sys.executable, "-c", _DECODE, str(last)]
    tried, end = 0, time.monotonic() + SECONDS
    written = tmp_path / "written"
    with (
        written.open("wb") as errors,
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:
            for data in mutated(chance, files()):
                process.stdin.write(len(data).to_bytes(4, "little") + data)
                tried += 1
                if time.monotonic() > end:
                    break
    kept = last.read_bytes() if process.returncode else b""
    assert process.returncode == 0, (seed, written.read_text(errors="replace")[-2000:], kept[:4096])
    assert tried > 0
