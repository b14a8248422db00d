"""
What is looked at in the file of an image before a decoder sees any of it.

What always holds: the work is bounded by the file's length, and what `reduce` hands on is within LIMITS and holds what
is needed to draw one page or the first frame, nothing else. Colour profiles, EXIF, texts, further frames and pages are
left out: decoders never see them. No pixel is decoded here.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import UnreadableImage
from .image_limits import LIMITS, Reduced, malformed
from .tiff_files import orientation_of, pages_of_tiff, reduce_tiff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FORMATS", "begins_like_an_image", "count_pages", "opening_of", "reduce"]


def reduce(data: bytes, page: int = 0) -> Reduced:
    """
    One page of a TIFF, the first frame of what else there is, with its limits checked as far as its size is not needed
    for them
    """
    _check_length(data)
    for opening, reducer in _REDUCERS.items():
        if opening.match(data):
            try:
                return reduce_tiff(memoryview(data), page) if reducer is reduce_tiff else reducer(memoryview(data))
            except (struct.error, IndexError, StopIteration) as error:
                raise malformed() from error
    raise UnreadableImage(f"expected an image ({', '.join(FORMATS)}), got {opening_of(data)}")


def count_pages(data: bytes, most: int) -> int:
    """Those of a TIFF, where one more than `most` is enough to know; 1 for any other file"""
    _check_length(data)
    if not _TIFF.match(data):
        return 1
    try:
        return pages_of_tiff(memoryview(data), most)
    except struct.error as error:
        raise malformed() from error


def begins_like_an_image(data: bytes) -> bool:
    return any(opening.match(data) for opening in _REDUCERS)


def _check_length(data: bytes) -> None:
    if len(data) > LIMITS.file_bytes:
        raise UnreadableImage(f"expected an image of at most {LIMITS.file_bytes} bytes, got {len(data)}")


def opening_of(data: bytes) -> str:
    return f"{len(data)} bytes that begin with {data[:8]!r}" if data else "no bytes"


_EXIF = b"Exif\0\0"

# --- PNG ---


def _reduce_png(data: memoryview) -> Reduced:
    kept, orientation = [data[:8]], None
    for name, chunk in _chunks(data, 8, ">I4s", "PNG", checksum=4):
        if name in {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"}:
            kept.append(chunk)
        elif name == b"eXIf" and orientation is None:
            orientation = orientation_of(chunk[8:-4])
        if name == b"IEND":
            break
    length, name, width, height, bits, colour = struct.unpack_from(">I4sIIBB", data, 8)
    if (length, name) != (13, b"IHDR"):
        raise malformed()
    pixel_bytes = (2 if bits == 16 else 1) if colour in {0, 3} else 4
    return Reduced("PNG", width, height, kept, pixel_bytes * width * height, orientation)


def _chunks(
    data: memoryview, at: int, layout: str, kind: str, *, checksum: int = 0, even: bool = False
) -> Iterator[tuple[bytes, memoryview]]:
    """Name and whole of each chunk, the last of which may be cut short"""
    for _ in range(LIMITS.parts):
        if at + 8 > len(data):
            return
        one, other = struct.unpack_from(layout, data, at)
        name, length = (one, other) if isinstance(one, bytes) else (other, one)
        end = at + 8 + length + checksum + (length % 2 if even else 0)
        yield name, data[at:end]
        at = end
    raise _too_many_parts(kind)


def _too_many_parts(kind: str) -> UnreadableImage:
    return UnreadableImage(f"expected at most {LIMITS.parts} parts in a file, got a {kind} of more")


# --- JPEG ---

_SOI, _EOI, _SOS, _EXIF_SEGMENT = 0xD8, 0xD9, 0xDA, 0xE1
_FRAMES = {0xC0, 0xC1, 0xC2}
_PROGRESSIVE = 0xC2
# arithmetic coding, lossless and hierarchical frames: no camera, scanner or browser writes them
_OTHER_FRAMES = {0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}
_TABLES = {0xC4, 0xDB, 0xDD}
_WITHOUT_LENGTH = {0x01, _SOI, *range(0xD0, 0xD8)}
_MARKER = re.compile(rb"\xff([\x01-\xfe])")
_MARKER_IN_SCAN = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")


@dataclass(frozen=True)
class _Frame:
    width: int
    height: int
    progressive: bool
    layers: int
    samples: float
    """Of all layers, for each pixel"""


def _reduce_jpeg(data: memoryview) -> Reduced:
    kept, frame, orientation, scans_at = [data[:2]], None, None, len(data)
    for marker, segment, at in _segments(data):
        if marker == _SOS:
            scans_at = at
            break
        if marker in _FRAMES:
            if frame is not None:
                raise malformed()
            frame = _frame(marker, segment)
        elif marker == _EXIF_SEGMENT and orientation is None and segment[4:10].tobytes() == _EXIF:
            orientation = orientation_of(segment[10:])
        if marker in _FRAMES | _TABLES or segment[4:9].tobytes() in {b"JFIF\0", b"Adobe"}:
            kept.append(segment)
    if frame is None:
        raise malformed()
    if sum(map(len, kept)) > LIMITS.table_bytes:
        raise UnreadableImage(f"expected a JPEG with at most {LIMITS.table_bytes} bytes of tables, got more")
    scans, end = _scans(data, scans_at)
    return Reduced(
        "JPEG",
        frame.width,
        frame.height,
        [*kept, data[scans_at:end]],
        _jpeg_bytes(frame, scans),
        orientation,
        # four bytes for a pixel in the place of one
        colour_bytes=3 * frame.width * frame.height if frame.layers == 3 else 0,
    )


def _jpeg_bytes(frame: _Frame, scans: int) -> int:
    """What decoding takes, once the scans are found to be few enough"""
    pixels = frame.width * frame.height
    if scans > LIMITS.scans or scans * pixels > LIMITS.scanned_pixels:
        raise UnreadableImage(
            f"expected a JPEG of at most {LIMITS.scans} scans and {LIMITS.scanned_pixels} pixels in all of them, got "
            f"{scans} scans of {frame.width} × {frame.height} pixels"
        )
    decoded = pixels * (4 if frame.layers == 4 else 1)
    if frame.progressive or scans > 1:
        # what is drawn in several scans is kept between them, two bytes for each sample
        decoded += int(2 * frame.samples * (frame.width + 32) * (frame.height + 32))
    return decoded


def _segments(data: memoryview, at: int = 2) -> Iterator[tuple[int, memoryview, int]]:
    """Marker, whole and place of each; what is after a scan's own segment is for the caller"""
    for _ in range(LIMITS.parts):
        found = _MARKER.search(data, at)
        if found is None:
            return
        at = found.start()
        marker = found[1][0]
        if marker == _EOI or marker in _OTHER_FRAMES:
            raise malformed()
        if marker in _WITHOUT_LENGTH:
            at += 2
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if length < 2 or at + 2 + length > len(data):
            raise malformed()
        yield marker, data[at : at + 2 + length], at
        at += 2 + length
    raise _too_many_parts("JPEG")


def _frame(marker: int, segment: memoryview) -> _Frame:
    bits, height, width, layers = struct.unpack_from(">BHHB", segment, 4)
    factors = [(factor >> 4, factor & 15) for factor in segment[11 : 10 + 3 * layers : 3]]
    if bits != 8 or layers not in {1, 3, 4} or len(segment) != 10 + 3 * layers:
        raise malformed()
    if not all(1 <= factor <= 4 for pair in factors for factor in pair):
        raise malformed()
    across, down = (max(sizes) for sizes in zip(*factors, strict=True))
    samples = sum(one * other for one, other in factors) / (across * down)
    return _Frame(width, height, marker == _PROGRESSIVE, layers, samples)


def _scans(data: memoryview, begin: int) -> tuple[int, int]:
    """How many there are, and where the image ends: another one may follow it"""
    scans, at = 0, begin
    for _ in range(LIMITS.parts):
        found = (_MARKER_IN_SCAN if scans else _MARKER).search(data, at)
        if found is None:
            return scans, len(data)
        at, marker = found.start(), found[1][0]
        if marker == _EOI:
            return scans, at + 2
        if marker in _FRAMES or marker in _OTHER_FRAMES:
            raise malformed()
        scans += marker == _SOS
        at += 2
        if marker not in _WITHOUT_LENGTH:
            at += struct.unpack_from(">H", data, at)[0]
    raise _too_many_parts("JPEG")


# --- WebP ---

_DRAWN = {b"VP8 ", b"VP8L", b"ANMF"}
_ALPHA_AND_ANIMATION = 0x12


def _reduce_webp(data: memoryview) -> Reduced:
    kept: list[memoryview | bytes] = []
    orientation = None
    drawn = b""
    for name, chunk in _chunks(data, 12, "<4sI", "WEBP", even=True):
        if name in _DRAWN and not drawn:
            kept.append(chunk)
            drawn = name
        elif name == b"VP8X" and not kept:
            flags = chunk[8] & _ALPHA_AND_ANIMATION
            kept.append(struct.pack("<4sIB", b"VP8X", 10, flags) + bytes(chunk[9:18]))
        elif name in {b"ANIM", b"ALPH"} and len(kept) == 1 and not drawn:
            kept.append(chunk)
        elif name == b"EXIF" and orientation is None:
            orientation = orientation_of(chunk[14 if chunk[8:14].tobytes() == _EXIF else 8 :])
    if not drawn:
        raise malformed()
    width, height = _webp_size(bytes(kept[0][:30]))
    length = 4 + sum(map(len, kept))
    kept.insert(0, struct.pack("<4sI4s", b"RIFF", length, b"WEBP"))
    # libwebp keeps the frame, the one before it and the answer, Pillow the pixels, and all are read as a whole
    decoded = 16 * width * height + 2 * length
    return Reduced("WEBP", width, height, kept, decoded, orientation)


def _webp_size(chunk: bytes) -> tuple[int, int]:
    if chunk[:4] == b"VP8X":
        return int.from_bytes(chunk[12:15], "little") + 1, int.from_bytes(chunk[15:18], "little") + 1
    if chunk[:4] == b"VP8L":
        (bits,) = struct.unpack_from("<I", chunk, 9)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk[:4] == b"VP8 ":
        width, height = struct.unpack_from("<HH", chunk, 14)
        return width & 0x3FFF, height & 0x3FFF
    raise malformed()


# --- GIF ---

_EXTENSION, _IMAGE, _GRAPHIC_CONTROL = 0x21, 0x2C, 0xF9
_GIF_END = b";"
_MOST_PART_BYTES = 256


def _reduce_gif(data: memoryview) -> Reduced:
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + (6 << (flags & 7) if flags & 0x80 else 0)
    kept = [data[:at]]
    control = data[:0]
    for _ in range(LIMITS.parts):
        if data[at] == _IMAGE:
            left, top, own_width, own_height = struct.unpack_from("<HHHH", data, at + 1)
            # a frame that is larger than the screen makes it larger
            width, height = max(width, left + own_width), max(height, top + own_height)
            frame = data[at : _end_of_gif_frame(data, at)]
            return Reduced("GIF", width, height, [*kept, control, frame, _GIF_END], 2 * width * height)
        if data[at] != _EXTENSION:
            raise malformed()
        begin, at = at, at + 2
        for _ in range(LIMITS.parts):
            at += 1 + data[at]
            if data[at] == 0:
                break
        else:
            break
        at += 1
        if data[begin + 1] == _GRAPHIC_CONTROL:
            control = data[begin:at]
    raise _too_many_parts("GIF")


def _end_of_gif_frame(data: memoryview, at: int) -> int:
    flags = data[at + 9]
    at += 11 + (6 << (flags & 7) if flags & 0x80 else 0)
    # As many parts as its length may need, and some that are not full.
    for _ in range(len(data) // _MOST_PART_BYTES + LIMITS.parts):
        # It may be cut short.
        if at >= len(data):
            return len(data)
        length = data[at]
        at += 1 + length
        if length == 0:
            return at
    raise _too_many_parts("GIF")


# --- BMP ---


def _reduce_bmp(data: memoryview) -> Reduced:
    (size,) = struct.unpack_from("<I", data, 14)
    compression = 0
    if size == 12:
        width, height = struct.unpack_from("<HH", data, 18)
    else:
        width, height, compression = struct.unpack_from("<Ii4xI", data, 18)
    if compression not in {0, 3}:
        raise UnreadableImage("expected a BMP without compression, got one with")
    return Reduced("BMP", width, abs(height), [data], 4 * width * abs(height))


_TIFF = re.compile(rb"II\*\0|MM\0\*")
_REDUCERS: dict[re.Pattern[bytes], Callable[[memoryview], Reduced]] = {
    re.compile(rb"\x89PNG\r\n\x1a\n"): _reduce_png,
    re.compile(rb"\xff\xd8\xff"): _reduce_jpeg,
    re.compile(rb"RIFF.{4}WEBP", re.DOTALL): _reduce_webp,
    re.compile(rb"GIF8[79]a"): _reduce_gif,
    re.compile(rb"BM"): _reduce_bmp,
    _TIFF: reduce_tiff,
}
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
