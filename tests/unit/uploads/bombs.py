"""
Files that are small to send and would be dear to decode. Each is made when it is asked for: some have megabytes.

`HARMLESS` are those whose dangerous part is not needed to draw the image, so that it is drawn; `REFUSED` says what the
others are told.
"""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import TYPE_CHECKING

from PIL import Image

from tests.unit.uploads.bits import Bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "HARMLESS",
    "REFUSED",
    "jpeg_of_scans",
    "png",
    "saved",
    "strips",
    "tiff_of_jpeg_scans",
    "tiff_of_one_tile",
    "tiff_of_tags",
    "webp_of_frames",
    "webp_of_trees",
]

MEGABYTE = 1 << 20


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def zeros(length: int) -> bytes:
    """That many and some more, deflated, at the price of one megabyte of them"""
    packer = zlib.compressobj(9)
    # a block that stands alone, so that it may be repeated
    head, block = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH), b""
    block = packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * -(-length // MEGABYTE) + b"\x03\0" + bytes(4)


# --- PNG ---


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(between: Iterable[bytes] = (), width: int = 8, height: int = 8, *, bits: int = 8, colour: int = 0) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    row = 1 + width * bits * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour] // 8
    pixels = zeros(row * height) if width * height <= 10**8 else zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(between) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def png_of_texts() -> bytes:
    """64 texts that take a megabyte each"""
    packed = zlib.compress(bytes(MEGABYTE - 1))
    texts = [chunk(b"zTXt", b"text%d\0\0" % number + packed) for number in range(30)]
    international = [chunk(b"iTXt", b"name%d\0\1\0\0\0" % number + packed) for number in range(30)]
    return png([*texts, *international, chunk(b"iCCP", b"name\0\0" + packed)])


def png_of_chunks() -> bytes:
    return png([chunk(b"tEXt", b"")] * MEGABYTE)


# --- JPEG ---


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def jpeg(*segments: bytes, size: int = 8) -> bytes:
    return b"\xff\xd8" + b"".join(segments) + saved(Image.new("L", (size, size), 128), "JPEG")[2:]


def jpeg_of_scans(scans: int, width: int, height: int, *, layers: int = 1, factor: int = 1) -> bytes:
    """Progressive: each scan refines all blocks of a layer, in which there is nothing to refine"""
    frame = segment(
        0xC2,
        struct.pack(">BHHB", 8, height, width, layers)
        + b"".join(bytes([number, factor << 4 | factor, 0]) for number in range(layers)),
    )
    quantities = segment(0xDB, bytes([0]) + bytes([1]) * 64)
    # one code of one bit: no difference for DC; for AC, end of band for 2^14 blocks and 14 more bits
    codes = bytes([1]) + bytes(15)
    tables = segment(0xC4, b"\x00" + codes + b"\x00" + b"\x10" + codes + b"\xe0")
    blocks = (-(-width // 8)) * (-(-height // 8))
    runs = -(-blocks // (1 << 15)) + 1
    scan = Bits()
    for _ in range(runs):
        scan.put_high(0, 1)
        scan.put_high((1 << 14) - 1, 14)
    entropy = scan.high_bytes().replace(b"\xff", b"\xff\x00")
    first = segment(0xDA, bytes([layers]) + b"".join(bytes([n, 0]) for n in range(layers)) + b"\0\0\0")
    later = [segment(0xDA, bytes([1, number % layers, 0, 1, 63, 0x10])) + entropy for number in range(scans - 1)]
    dc = bytes(layers * blocks // 8 + 1)
    return b"\xff\xd8" + frame + quantities + tables + first + dc + b"".join(later) + b"\xff\xd9"


def exif_of_overlapping_tags() -> bytes:
    """5000 tags that have the same 50 KB each"""
    count = 5000
    tags = [struct.pack("<HHII", 1 + number, 7, 50_000, 8) for number in range(count)]
    return b"II*\0" + struct.pack("<IH", 8, count) + b"".join(tags) + bytes(4)


# --- TIFF ---


def tiff(entries: dict[int, tuple[int, Sequence[int]]], data: bytes = b"", repeated: int = 1) -> bytes:
    """Where `data` begins is 8. Values that are no bytes, 16 or 32 bits are not made"""
    place, ifd, behind = 8 + len(data), b"", b""
    count = len(entries) * repeated
    values_at = place + 2 + 12 * count + 4
    for tag, (kind, values) in sorted(entries.items()):
        packed = struct.pack(f"<{len(values)}{'BHI'[(1, 3, 4).index(kind)]}", *values)
        if len(packed) > 4:
            where, behind = struct.pack("<I", values_at + len(behind)), behind + packed
        else:
            where = packed.ljust(4, b"\0")
        ifd += (struct.pack("<HHI", tag, kind, len(values)) + where) * repeated
    return b"II*\0" + struct.pack("<I", place) + data + struct.pack("<H", count) + ifd + bytes(4) + behind


def grey_tiff(
    data: bytes, more: dict[int, tuple[int, Sequence[int]]], *, width: int = 64, height: int = 64, compression: int = 8
) -> bytes:
    entries: dict[int, tuple[int, Sequence[int]]] = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [8]),
        259: (3, [compression]),
        262: (3, [1]),
        277: (3, [1]),
    }
    return tiff({**entries, **more}, data)


def tiff_of_one_tile(side: int) -> bytes:
    data = zeros(side * side)
    return grey_tiff(data, {322: (4, [side]), 323: (4, [side]), 324: (4, [8]), 325: (4, [len(data)])})


def strips(data: bytes, count: int, *, samples: int = 1, rows: int = 1, width: int = 64, compression: int = 8) -> bytes:
    """All of them the same bytes"""
    places: dict[int, tuple[int, Sequence[int]]] = {
        273: (4, [8] * count),
        277: (4, [samples]),
        278: (4, [rows]),
        279: (4, [len(data)] * count),
    }
    return grey_tiff(data, places, width=width, height=rows * count, compression=compression)


def tiff_of_tags(count: int) -> bytes:
    data = bytes(64 * 64)
    unknown: dict[int, tuple[int, Sequence[int]]] = {40_000 + number: (3, [1, 2]) for number in range(count)}
    places: dict[int, tuple[int, Sequence[int]]] = {273: (4, [8]), 278: (4, [64]), 279: (4, [len(data)])}
    return grey_tiff(data, {**places, **unknown}, compression=1)


def tiff_of_jpeg_scans() -> bytes:
    return strips(jpeg_of_scans(2000, 1024, 1024), 1, rows=1024, width=1024, compression=7)


# --- WebP ---


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"WEBP" + b"".join(
        name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2) for name, content in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def three(number: int) -> bytes:
    return struct.pack("<I", number)[:3]


def webp_of_frames(count: int) -> bytes:
    still = saved(Image.new("RGB", (1, 1)), "WEBP", lossless=True)[12:]
    frame = three(0) * 4 + three(10) + b"\0" + still
    return riff((b"VP8X", bytes([2, 0, 0, 0]) + three(0) * 2), (b"ANIM", bytes(6)), *[(b"ANMF", frame)] * count)


def webp_of_canvas(side: int) -> bytes:
    still = saved(Image.new("RGB", (1, 1)), "WEBP", lossless=True)[12:]
    frame = three(0) * 4 + three(10) + b"\0" + still
    return riff((b"VP8X", bytes([2, 0, 0, 0]) + three(side - 1) * 2), (b"ANIM", bytes(6)), (b"ANMF", frame))


def webp_of_trees(groups: int, side: int = 1024) -> bytes:
    """Lossless, with Huffman codes of its own for nearly each block of 4 × 4 pixels"""
    bits = Bits()
    bits.put(0x2F, 8)
    bits.put(side - 1, 14)
    bits.put(side - 1, 14)
    bits.put(0, 1 + 3)
    bits.put(0, 1)  # no transform
    bits.put(0, 1)  # no cache of colours
    bits.put(1, 1)  # several groups of codes, which an image of the blocks says:
    bits.put(0, 3)  # of 4 x 4 pixels
    bits.put(0, 1)  # without a cache of colours
    # its codes: 256 greens, of 280, and 256 reds of eight bits each, and one blue, alpha, distance
    _flat_code(bits, 256, 280)
    _flat_code(bits, 256, 256)
    for _ in range(3):
        _one_symbol(bits)
    blocks = (-(-side // 4)) ** 2
    for block in range(blocks):
        group = block % groups
        # green is the low byte, red the high one
        bits.put(_reversed(group & 255), 8)
        bits.put(_reversed(group >> 8), 8)
    for _ in range(groups * 5):
        _one_symbol(bits)
    content = bits.low_bytes() + bytes(64)
    return riff((b"VP8L", content))


def _reversed(number: int) -> int:
    return int(f"{number:08b}"[::-1], 2)


def _one_symbol(bits: Bits) -> None:
    bits.put(1, 1)
    bits.put(0, 1)
    bits.put(0, 1)
    bits.put(0, 1)


def _flat_code(bits: Bits, used: int, alphabet: int) -> None:
    """The first `used` symbols have eight bits each"""
    bits.put(0, 1)
    # lengths 8 and 0 have codes of one bit; in the order 17 18 0 1 2 3 4 5 16 6 7 8
    bits.put(12 - 4, 4)
    for length in (17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8):
        bits.put(1 if length in {0, 8} else 0, 3)
    bits.put(0, 1)
    for symbol in range(alphabet):
        bits.put(1 if symbol < used else 0, 1)


# --- GIF and BMP ---


def gif(*extensions: bytes, screen: int = 8, frame: int = 8) -> bytes:
    head = b"GIF89a" + struct.pack("<HHBBB", screen, screen, 0, 0, 0)
    image = struct.pack("<BHHHHB", 0x2C, 0, 0, frame, frame, 0) + b"\x02\x02\x4c\x01\x00"
    return head + b"".join(extensions) + image + b";"


def gif_of_comments() -> bytes:
    return gif(b"\x21\xfe" + b"\x01a" * (8 * MEGABYTE) + b"\0")


def gif_of_frames() -> bytes:
    frame = Image.new("L", (64, 64))
    frames = [frame.point([level] * 256) for level in (1, 2)] * 500
    return saved(frame, "GIF", save_all=True, append_images=frames)


def bmp(compression: int, width: int, height: int, data: bytes) -> bytes:
    head = struct.pack("<2sIHHI", b"BM", 0, 0, 0, 54 + 1024)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, compression, len(data), 0, 0, 0, 0)
    return head + info + bytes(number // 4 for number in range(1024)) + data


HARMLESS: dict[str, Callable[[], bytes]] = {
    "PNG of texts and a profile": png_of_texts,
    "PNG of EXIF that overlaps": lambda: png([chunk(b"eXIf", exif_of_overlapping_tags())]),
    "JPEG of EXIF that overlaps": lambda: jpeg(segment(0xE1, b"Exif\0\0" + exif_of_overlapping_tags())),
    "JPEG of profiles": lambda: jpeg(
        *[segment(0xE2, b"ICC_PROFILE\0" + bytes([number, 255]) + bytes(65_000)) for number in range(1, 256)] * 3
    ),
    "JPEG of filling": lambda: jpeg(b"\xff" * (16 * MEGABYTE)),
    "JPEG followed by others": lambda: jpeg() + jpeg_of_scans(5000, 64, 64),
    "GIF of frames": gif_of_frames,
    "WebP of EXIF that overlaps": lambda: riff(
        (b"VP8X", bytes([8, 0, 0, 0]) + three(0) * 2),
        *[(b"VP8L", saved(Image.new("RGB", (1, 1)), "WEBP", lossless=True)[20:])],
        (b"EXIF", exif_of_overlapping_tags()),
    ),
    "WebP of few frames": lambda: webp_of_frames(1000),
}

REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "PNG of pixels": (lambda: png(width=50_000, height=50_000), "expected at most 24 megapixels"),
    "PNG of chunks": (png_of_chunks, "expected at most 65536 parts in a file, got a PNG of more"),
    "JPEG of scans": (lambda: jpeg_of_scans(5000, 1024, 1024), "5000 scans of 1024 × 1024 pixels"),
    "JPEG of large scans": (lambda: jpeg_of_scans(20, 4896, 4896), "20 scans of 4896 × 4896 pixels"),
    "JPEG of layers": (
        lambda: jpeg_of_scans(2, 4896, 4896, layers=4),
        "expected an image that takes at most 176 MB to decode, got a JPEG of 4896 × 4896 pixels",
    ),
    "JPEG of tables": (
        lambda: jpeg(*[segment(0xDB, (bytes([0]) + bytes([1]) * 64) * 1000)] * 500),
        "expected a JPEG with at most 65536 bytes of tables, got more",
    ),
    "JPEG of segments": (
        lambda: jpeg(*[segment(0xFE, b"")] * MEGABYTE),
        "expected at most 65536 parts in a file, got a JPEG of more",
    ),
    "TIFF of one tile": (
        lambda: tiff_of_one_tile(46_320),
        "expected at most 48 megapixels in tiles or strips, got a TIFF of 64 × 64 pixels with 2145.5",
    ),
    "TIFF of strips": (
        lambda: strips(bytes(64), 70_000, compression=1),
        "expected at most 65536 tiles or strips, got a TIFF with 70000",
    ),
    "TIFF of strips that overlap": (
        lambda: strips(zlib.compress(bytes(64)) + bytes(16 * MEGABYTE), 4096),
        "the image is truncated or malformed",
    ),
    "TIFF of tags": (lambda: tiff_of_tags(2000), "expected at most 256 tags, got a TIFF with 2009"),
    "TIFF of samples": (lambda: strips(bytes(64), 1, samples=1 << 30), "the image is truncated or malformed"),
    "TIFF of scans": (tiff_of_jpeg_scans, "expected one scan in each tile or strip, got a TIFF with more"),
    "WebP of frames": (lambda: webp_of_frames(MEGABYTE), "expected at most 65536 parts in a file, got a WEBP of more"),
    "WebP of pixels": (lambda: webp_of_canvas(16_000), "expected at most 24 megapixels"),
    "WebP of frames it keeps": (lambda: webp_of_canvas(4000), "expected an image that takes at most 176 MB to decode"),
    "GIF of comments": (gif_of_comments, "expected at most 65536 parts in a file, got a GIF of more"),
    "GIF of a large frame": (lambda: gif(frame=60_000), "expected at most 24 megapixels"),
    "BMP of runs": (lambda: bmp(1, 4096, 4096, b"\x01\x00" * (8 * MEGABYTE)), "expected a BMP without compression"),
    "BMP of pixels": (lambda: bmp(0, 1 << 30, 1 << 30, b""), "expected at most 24 megapixels"),
    "bytes": (lambda: png() + bytes(64 * MEGABYTE), "expected an image of at most 67108864 bytes"),
}
