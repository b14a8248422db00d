"""Heads of HTTP/2 as bytes (RFC 7541): written plainly, and read as far as a server needs that may keep no table"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["block", "read_block"]

Fields = list[tuple[str, str]]

NAMES: Final = """
    accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control
    content-disposition content-encoding content-language content-length content-location content-range content-type
    cookie date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since
    last-modified link location max-forwards proxy-authenticate proxy-authorization range referer refresh
    retry-after server set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate
"""

STATIC: Final[Fields] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    *((":status", code) for code in ("200", "204", "206", "304", "400", "404", "500")),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    *((name, "") for name in NAMES.split()),
]
assert len(STATIC) == 61

CODED: Final = {
    5: "012aceiost",
    6: " %-./3456789=A_bdfghlmnpru",
    7: ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: "&*,;XZ",
    10: '!"()?',
    11: "'+|",
    12: "#>",
    13: "\0$@[]~",
    14: "^}",
    15: "<`{",
}
"""Characters by the bits of their codes, which follow one another; what is longer is no character of a text"""


def _codes() -> Iterator[tuple[str, str]]:
    code, length = 0, 5
    for bits, characters in CODED.items():
        code <<= bits - length
        length = bits
        for character in characters:
            yield f"{code:0{bits}b}", character
            code += 1


HUFFMAN: Final = dict(_codes())


def block(fields: Iterable[tuple[str | bytes, str | bytes]]) -> bytes:
    """A head without codes and without a table: each field as it is"""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def _text(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return _number(len(raw), 7) + raw


def _number(value: int, bits: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    made, value = bytearray([most]), value - most
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def read_block(data: bytes) -> dict[str, str]:
    """The fields of a head, of which none refers to a table"""
    reader = _Reader(data)
    fields = {}
    while reader.at < len(data):
        first = data[reader.at]
        if first & 128:
            name, value = STATIC[reader.number(7) - 1]
        elif first & 0xE0 == 0x20:
            assert reader.number(5) == 0, "a table that the client does not keep"
            continue
        else:
            index = reader.number(6 if first & 64 else 4)
            name = STATIC[index - 1][0] if index else reader.text()
            value = reader.text()
        fields[name] = value
    return fields


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, bits: int) -> int:
        most = (1 << bits) - 1
        value = self.data[self.at] & most
        self.at += 1
        shift = 0
        while value >= most:
            byte = self.data[self.at]
            self.at += 1
            value += (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        return value

    def text(self) -> str:
        is_coded = self.data[self.at] & 128
        length = self.number(7)
        raw = self.data[self.at : self.at + length]
        self.at += length
        return _decoded(raw) if is_coded else raw.decode()


def _decoded(raw: bytes) -> str:
    text, code = "", ""
    for bit in "".join(f"{byte:08b}" for byte in raw):
        code += bit
        if code in HUFFMAN:
            text, code = text + HUFFMAN[code], ""
    assert len(code) < 8, "a character that is none of a text"
    assert "0" not in code, "what is left over is not of ones"
    return text
