"""
The directory of a TIFF, which EXIF is as well: read strictly, and written anew with the tags that a decoder needs.

Pillow and libtiff each read the directory, and differently where it is ambiguous. What they get from here is not: each
tag once, of a type and a number of values that fit, within the file. Of EXIF one tag is read, where Pillow
would read all of them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from .errors import UnreadableImage
from .image_limits import LIMITS, Reduced, malformed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

__all__ = ["orientation_of", "pages_of_tiff", "reduce_tiff"]

_KIND = 254
_WIDTH, _HEIGHT, _BITS, _COMPRESSION = 256, 257, 258, 259
_OFFSETS, _ORIENTATION, _SAMPLES, _ROWS_PER_STRIP, _LENGTHS = 273, 274, 277, 278, 279
_PLANES, _TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_LENGTHS = 284, 322, 323, 324, 325
_JPEG_TABLES = 347
_TILED = {_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_LENGTHS}
_PLACES = {_OFFSETS, _LENGTHS, _TILE_OFFSETS, _TILE_LENGTHS}
_SEPARATE_PLANES = 2
_SMALLER = 1
"""The bit of a directory's kind that says: a smaller copy of another one"""
_JPEG = 7

_MOST_VALUES: Final[dict[int, int]] = {
    **dict.fromkeys((_WIDTH, _HEIGHT, _COMPRESSION, _SAMPLES, _ROWS_PER_STRIP, _PLANES, _TILE_WIDTH, _TILE_HEIGHT), 1),
    # photometric interpretation, order of bits, options of fax, predictor
    **dict.fromkeys((262, 266, 292, 293, 317), 1),
    **dict.fromkeys(_PLACES, LIMITS.tiles),
    # bits, kinds of extra samples, formats of samples, subsampling: some for each sample
    **dict.fromkeys((_BITS, 338, 339, 530), 6),
    # the palette
    320: 3 * 256,
    _JPEG_TABLES: LIMITS.table_bytes,
}
"""Of the tags that a decoder needs. All others are left out"""

_COMPRESSIONS: Final = {1, 2, 3, 4, 5, _JPEG, 8, 32773, 32946}
"""None, fax, LZW, JPEG, Deflate and PackBits: what scanners and their programs write"""
_TYPES: Final = {1: "u1", 3: "u2", 4: "u4", 7: "u1"}


@dataclass(frozen=True)
class _Entry:
    raw: bytes
    values: npt.NDArray[np.unsignedinteger]


def pages_of_tiff(data: memoryview, most: int) -> int:
    """Of which one more than `most` is enough to know"""
    return sum(1 for _ in islice(_pages(data), most + 1))


def reduce_tiff(data: memoryview, page: int = 0) -> Reduced:
    order, _ = _header(data)
    at = next(islice(_pages(data), page, None))
    entries = _entries(data, order, at, _MOST_VALUES)
    numbers = {tag: int(entry.values[0]) for tag, entry in entries.items() if len(entry.values)}
    try:
        width, height = numbers[_WIDTH], numbers[_HEIGHT]
    except KeyError:
        raise malformed() from None
    compression = numbers.get(_COMPRESSION, 1)
    if compression not in _COMPRESSIONS:
        raise UnreadableImage(f"expected a TIFF of a common compression, got one of number {compression}")
    samples, bits = numbers.get(_SAMPLES, 1), int(entries[_BITS].values.max()) if _BITS in entries else 1
    if not (1 <= samples <= 6 and 1 <= bits <= 64 and width and height):
        raise malformed()
    tiled = _TILED & entries.keys()
    if tiled:
        across, down = numbers.get(_TILE_WIDTH, 0), numbers.get(_TILE_HEIGHT, 0)
        entries = {tag: entry for tag, entry in entries.items() if tag not in {_OFFSETS, _LENGTHS, _ROWS_PER_STRIP}}
    else:
        across, down = width, min(numbers.get(_ROWS_PER_STRIP, height), height)
        entries[_ROWS_PER_STRIP] = _one(order, _ROWS_PER_STRIP, down)
    if not across or not down:
        raise malformed()
    columns, rows = -(-width // across), -(-height // down)
    planes = samples if numbers.get(_PLANES, 1) == _SEPARATE_PLANES else 1
    _check_places(data, entries, columns * rows * planes, tiled=bool(tiled), jpeg=compression == _JPEG)
    coded = columns * across * rows * down
    pixel_bytes = 4 if samples > 1 or bits > 8 else 1
    # the file once more, and a tile as it is, as colours, and as JPEG keeps it between scans
    tile_bytes = samples * -(-bits // 8) * (3 if compression == _JPEG else 1) + 4
    decoded = pixel_bytes * width * height + len(data) + across * down * tile_bytes
    padding = bytes(len(data) % 2)
    ifd = struct.pack(order + "H", len(entries)) + b"".join(entries[tag].raw for tag in sorted(entries)) + bytes(4)
    pieces: list[memoryview | bytes] = [
        data[:4],
        struct.pack(order + "I", len(data) + len(padding)),
        data[8:],
        padding,
        ifd,
    ]
    return Reduced("TIFF", width, height, pieces, decoded, _number(data, order, at, _ORIENTATION), coded)


def orientation_of(exif: memoryview) -> int | None:
    """None where there is none that can be read"""
    try:
        return _number(exif, *_header(exif), _ORIENTATION)
    except (UnreadableImage, struct.error):
        return None


def _pages(data: memoryview) -> Iterator[int]:
    """Where the directory of each begins; the first one is a page whatever it says"""
    order, at = _header(data)
    yield at
    for _ in range(LIMITS.parts):
        (count,) = struct.unpack_from(order + "H", data, at)
        (at,) = struct.unpack_from(order + "I", data, at + 2 + 12 * count)
        if not at:
            return
        if not (_number(data, order, at, _KIND) or 0) & _SMALLER:
            yield at
    raise UnreadableImage(f"expected at most {LIMITS.parts} directories, got a TIFF with more")


def _number(data: memoryview, order: str, at: int, tag: int) -> int | None:
    try:
        entry = _entries(data, order, at, {tag: 1}).get(tag)
    except UnreadableImage:
        return None
    return int(entry.values[0]) if entry and len(entry.values) else None


def _header(data: memoryview) -> tuple[str, int]:
    order = "<" if bytes(data[:2]) == b"II" else ">"
    number, at = struct.unpack_from(order + "HI", data, 2)
    if number != 42:
        raise malformed()
    return order, at


def _entries(data: memoryview, order: str, at: int, most_values: dict[int, int]) -> dict[int, _Entry]:
    """Those of the directory at that place that are asked for"""
    (count,) = struct.unpack_from(order + "H", data, at)
    if count > LIMITS.tags:
        raise UnreadableImage(f"expected at most {LIMITS.tags} tags, got a TIFF with {count}")
    entries: dict[int, _Entry] = {}
    for place in range(at + 2, at + 2 + 12 * count, 12):
        tag, kind, length = struct.unpack_from(order + "HHI", data, place)
        most = most_values.get(tag)
        if most is None:
            continue
        if tag in entries or kind not in _TYPES or not 0 < length <= most:
            if tag in _PLACES and length > most:
                raise UnreadableImage(f"expected at most {LIMITS.tiles} tiles or strips, got a TIFF with {length}")
            raise malformed()
        values = np.dtype(order + _TYPES[kind])
        begin = place + 8
        if length * values.itemsize > 4:
            (begin,) = struct.unpack_from(order + "I", data, begin)
        if begin + length * values.itemsize > len(data):
            raise malformed()
        entries[tag] = _Entry(bytes(data[place : place + 12]), np.frombuffer(data, values, length, begin))
    return entries


def _one(order: str, tag: int, value: int) -> _Entry:
    return _Entry(struct.pack(order + "HHII", tag, 4, 1, value), np.array([value], np.uint32))


def _check_places(data: memoryview, entries: dict[int, _Entry], count: int, *, tiled: bool, jpeg: bool) -> None:
    """Each tile or strip lies in the file, and no two share bytes that would be read again and again"""
    offsets = entries.get(_TILE_OFFSETS if tiled else _OFFSETS)
    lengths = entries.get(_TILE_LENGTHS if tiled else _LENGTHS)
    if offsets is None or lengths is None or not len(offsets.values) == len(lengths.values) == count:
        raise malformed()
    begins, sizes = offsets.values.astype(np.int64), lengths.values.astype(np.int64)
    if (begins + sizes).max() > len(data) or sizes.sum() > len(data):
        raise malformed()
    if jpeg:
        for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True):
            if bytes(data[begin : begin + size]).count(b"\xff\xda") > 1:
                raise UnreadableImage("expected one scan in each tile or strip, got a TIFF with more")
