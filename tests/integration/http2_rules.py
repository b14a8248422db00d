"""The rules of RFC 9113, sections 3 to 6, each broken: what is sent, and what a server has to say to it"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tests.hpack import block
from tests.raw_http2 import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PRIORITY,
    Code,
    Kind,
    Setting,
    frame,
    head,
    message,
    settings,
)

__all__ = ["CONNECTION", "HARMLESS", "STREAM", "Rule"]

PATH: Final = "/inference.GRPCInferenceService/ServerLive"
HEAD: Final = head(PATH)
PSEUDO: Final = [(":method", "POST"), (":scheme", "http"), (":path", PATH), (":authority", "localhost")]
GRPC: Final = [("content-type", "application/grpc"), ("te", "trailers")]
LARGEST: Final = (1 << 31) - 1


def begun(stream: int = 1, block: bytes = HEAD, flags: int = END_HEADERS) -> bytes:
    """The head of a call"""
    return frame(Kind.HEADERS, flags, stream, block)


def whole(stream: int = 1) -> bytes:
    return begun(stream) + frame(Kind.DATA, END_STREAM, stream, message(b""))


def reset(stream: int, code: int = Code.CANCEL) -> bytes:
    return frame(Kind.RST_STREAM, stream=stream, payload=code.to_bytes(4))


def window(stream: int, room: int) -> bytes:
    return frame(Kind.WINDOW_UPDATE, stream=stream, payload=room.to_bytes(4))


def counted(length: int, body: bytes) -> bytes:
    """A call that says how long its body is"""
    return begun(1, head(PATH, [("content-length", str(length))])) + frame(Kind.DATA, END_STREAM, 1, body)


def continued(stream: int) -> bytes:
    """The rest of the head of stream 1, as if it were of this one"""
    return begun(1, HEAD, 0) + frame(Kind.CONTINUATION, END_HEADERS, stream)


def call(fields: list[tuple[str, str]]) -> bytes:
    """A call whose head has these fields"""
    return begun(1, block(fields), END_HEADERS | END_STREAM)


@dataclass(frozen=True)
class Rule:
    section: str
    name: str
    sent: bytes
    codes: tuple[Code, ...]


PROTOCOL: Final = (Code.PROTOCOL_ERROR,)
FLOW: Final = (Code.FLOW_CONTROL_ERROR,)
TOO_LARGE: Final = (Code.FRAME_SIZE_ERROR,)
CLOSED: Final = (Code.STREAM_CLOSED,)
# the crate h2 has no word of its own for what it cannot read, and none for what comes behind an end
SIZE: Final = (Code.FRAME_SIZE_ERROR, Code.PROTOCOL_ERROR)
COMPRESSION: Final = (Code.COMPRESSION_ERROR, Code.PROTOCOL_ERROR)
ENDED: Final = (Code.STREAM_CLOSED, Code.PROTOCOL_ERROR)

CONNECTION: Final = [
    Rule("4.2", "a frame beyond the largest size", frame(Kind.DATA, 0, 1, bytes((1 << 16) + 1)), TOO_LARGE),
    Rule("4.2", "SETTINGS beyond the largest size", frame(Kind.SETTINGS, payload=bytes(6 * 11000)), TOO_LARGE),
    Rule("4.3", "a head that cannot be decoded", begun(1, b"\xff\xff\xff\xff\xff\xff"), COMPRESSION),
    Rule("4.3", "an index beyond the table", begun(1, b"\xfe"), COMPRESSION),
    Rule("4.3", "index zero", begun(1, b"\x80"), COMPRESSION),
    Rule("4.3", "a Huffman code with eight bits of padding", begun(1, b"\0\x82\xff\xff\x01a"), COMPRESSION),
    Rule("4.3", "a table that is larger than allowed", begun(1, b"\x3f\xe1\xff\x03" + HEAD), COMPRESSION),
    Rule("5.1", "DATA on a stream that is idle", frame(Kind.DATA, END_STREAM, 1, b"x"), ENDED),
    Rule("5.1", "RST_STREAM on a stream that is idle", reset(1), PROTOCOL),
    Rule("5.1", "WINDOW_UPDATE on a stream that is idle", window(1, 1), PROTOCOL),
    Rule("5.1", "CONTINUATION on a stream that is idle", frame(Kind.CONTINUATION, END_HEADERS, 1, HEAD), PROTOCOL),
    Rule("5.1.1", "a stream of the server's", whole(2), PROTOCOL),
    Rule("5.1.1", "a stream below one that was begun", whole(5) + whole(3), ENDED),
    Rule("5.5", "an unknown frame within a head", begun(1, HEAD, 0) + frame(0x16, 0, 0, b"x"), PROTOCOL),
    Rule("6.1", "DATA on the connection", frame(Kind.DATA, 0, 0, b"x"), PROTOCOL),
    Rule("6.1", "DATA with as much padding as bytes", begun() + frame(Kind.DATA, PADDED, 1, b"\x04abc"), PROTOCOL),
    Rule("6.1", "DATA without the length of its padding", begun() + frame(Kind.DATA, PADDED, 1), SIZE),
    Rule("6.2", "HEADERS on the connection", begun(0), PROTOCOL),
    Rule("6.2", "HEADERS with more padding than bytes", begun(1, b"\xff" + HEAD, PADDED | END_HEADERS), PROTOCOL),
    Rule("6.2", "another frame within a head", begun(1, HEAD, 0) + frame(Kind.PING, payload=bytes(8)), PROTOCOL),
    Rule("6.2", "HEADERS of another stream within a head", begun(1, HEAD, 0) + begun(3), PROTOCOL),
    Rule("6.3", "PRIORITY on the connection", frame(Kind.PRIORITY, payload=bytes(5)), PROTOCOL),
    Rule("6.4", "RST_STREAM on the connection", reset(0), PROTOCOL),
    Rule("6.4", "RST_STREAM of five bytes", begun() + frame(Kind.RST_STREAM, 0, 1, bytes(5)), SIZE),
    Rule("6.5", "SETTINGS that acknowledge and say something", frame(Kind.SETTINGS, ACK, 0, bytes(6)), SIZE),
    Rule("6.5", "SETTINGS on a stream", frame(Kind.SETTINGS, 0, 1), PROTOCOL),
    Rule("6.5", "SETTINGS of five bytes", frame(Kind.SETTINGS, payload=bytes(5)), SIZE),
    Rule("6.5.2", "a push that is neither on nor off", settings({Setting.ENABLE_PUSH: 2}), PROTOCOL),
    Rule("6.5.2", "a window beyond 31 bits", settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}), (*FLOW, *PROTOCOL)),
    Rule("6.5.2", "frames below the least size", settings({Setting.MAX_FRAME_SIZE: (1 << 14) - 1}), PROTOCOL),
    Rule("6.5.2", "frames beyond 24 bits", settings({Setting.MAX_FRAME_SIZE: 1 << 24}), PROTOCOL),
    Rule(
        "6.6",
        "a promise of a client",
        frame(Kind.PUSH_PROMISE, 4, 1, bytes(4) + HEAD),
        PROTOCOL,
    ),
    Rule("6.7", "PING on a stream", frame(Kind.PING, 0, 1, bytes(8)), PROTOCOL),
    Rule("6.7", "PING of six bytes", frame(Kind.PING, payload=bytes(6)), SIZE),
    Rule("6.8", "GOAWAY on a stream", frame(Kind.GOAWAY, 0, 1, bytes(8)), PROTOCOL),
    Rule("6.9", "WINDOW_UPDATE of nothing", window(0, 0), PROTOCOL),
    Rule("6.9", "WINDOW_UPDATE of three bytes", frame(Kind.WINDOW_UPDATE, payload=bytes(3)), SIZE),
    Rule("6.9.1", "a window of the connection beyond 31 bits", window(0, LARGEST), FLOW),
    Rule("6.10", "CONTINUATION of no head", begun() + frame(Kind.CONTINUATION, END_HEADERS, 1, b""), PROTOCOL),
    Rule("6.10", "CONTINUATION on the connection", continued(0), PROTOCOL),
    Rule("6.10", "CONTINUATION of another stream", continued(3), PROTOCOL),
    Rule("6.10", "CONTINUATION behind DATA", begun(1, HEAD, 0) + frame(Kind.DATA, 0, 1, b""), PROTOCOL),
]
"""What ends the connection"""

STREAM: Final = [
    Rule("5.1", "DATA behind the end of a stream", whole() + frame(Kind.DATA, END_STREAM, 1, b"x"), ENDED),
    Rule("5.1", "HEADERS behind the end of a stream", whole() + begun(1, HEAD, 5), ENDED),
    Rule("5.1", "DATA behind a reset", begun() + reset(1) + frame(Kind.DATA, END_STREAM, 1, b"x"), CLOSED),
    Rule("5.3", "a stream that waits for itself", begun(1, struct.pack(">IB", 1, 0) + HEAD, 4 | PRIORITY), PROTOCOL),
    Rule("5.3", "PRIORITY of a stream on itself", frame(Kind.PRIORITY, 0, 1, struct.pack(">IB", 1, 0)), PROTOCOL),
    Rule("6.3", "PRIORITY of four bytes", frame(Kind.PRIORITY, 0, 1, bytes(4)), SIZE),
    Rule("6.9", "WINDOW_UPDATE of nothing", begun() + window(1, 0), PROTOCOL),
    Rule("6.9.1", "a window beyond 31 bits", begun() + window(1, LARGEST) + window(1, LARGEST), FLOW),
    Rule("8.1", "a second head without an end", begun() + begun(1, block(GRPC)), PROTOCOL),
    Rule(
        "8.1.1",
        "less than the length says",
        counted(9, b"x"),
        PROTOCOL,
    ),
    Rule(
        "8.1.1",
        "more than the length says",
        counted(1, b"xx"),
        PROTOCOL,
    ),
    Rule("8.2.1", "a name in capitals", call([*PSEUDO, *GRPC, ("X-Test", "ok")]), PROTOCOL),
    Rule("8.2.2", "a header of the connection", call([*PSEUDO, *GRPC, ("connection", "keep-alive")]), PROTOCOL),
    Rule("8.2.2", "te that is no trailers", call([*PSEUDO, GRPC[0], ("te", "gzip")]), PROTOCOL),
    Rule("8.3", "an unknown pseudo header", call([*PSEUDO, (":test", "ok"), *GRPC]), PROTOCOL),
    Rule("8.3", "a pseudo header of answers", call([*PSEUDO, (":status", "200"), *GRPC]), PROTOCOL),
    Rule("8.3", "a pseudo header behind others", call([*PSEUDO[:3], *GRPC, PSEUDO[3]]), PROTOCOL),
    Rule("8.3.1", "no method", call([*PSEUDO[1:], *GRPC]), PROTOCOL),
    Rule("8.3.1", "no scheme", call([PSEUDO[0], *PSEUDO[2:], *GRPC]), PROTOCOL),
    Rule("8.3.1", "no path", call([*PSEUDO[:2], PSEUDO[3], *GRPC]), PROTOCOL),
    Rule("8.3.1", "an empty path", call([*PSEUDO[:2], (":path", ""), *GRPC]), PROTOCOL),
    Rule("8.3.1", "two methods", call([PSEUDO[0], *PSEUDO, *GRPC]), PROTOCOL),
    Rule("8.3.1", "two paths", call([*PSEUDO, PSEUDO[2], *GRPC]), PROTOCOL),
]
"""What ends the call, and may end the connection: RFC 9113 5.4.2 leaves that to the server"""

HARMLESS: Final = {
    "an unknown frame": frame(0x16, 0xFF, 0, b"unknown"),
    "an unknown frame of a stream": frame(0xFE, 0xFF, 9, b"unknown"),
    "unknown flags": frame(Kind.PING, 0xFE, 0, b"flags   "),
    "an unknown setting": settings({0xFF: 7}),
    "empty settings": settings({}),
    "a ping's answer that nobody waits for": frame(Kind.PING, ACK, 0, bytes(8)),
    "a reserved bit": frame(Kind.PING, 0, 1 << 31, bytes(8)),
    "PRIORITY of a stream that is idle": frame(Kind.PRIORITY, 0, 9, struct.pack(">IB", 7, 200)),
    "PRIORITY of a head": begun(1, struct.pack(">IB", 0, 200) + HEAD, END_HEADERS | PRIORITY)
    + frame(Kind.DATA, END_STREAM, 1, message(b"")),
    "a head in pieces": begun(1, HEAD[:10], 0)
    + frame(Kind.CONTINUATION, 0, 1, HEAD[10:20])
    + frame(Kind.CONTINUATION, END_HEADERS, 1, HEAD[20:])
    + frame(Kind.DATA, END_STREAM, 1, message(b"")),
    "padding": begun(1, b"\x07" + HEAD + bytes(7), END_HEADERS | PADDED)
    + frame(Kind.DATA, END_STREAM | PADDED, 1, b"\x09" + message(b"") + bytes(9)),
    "DATA of nothing": begun() + frame(Kind.DATA, 0, 1) * 100 + frame(Kind.DATA, END_STREAM, 1, message(b"")),
    "a message in single bytes": begun()
    + b"".join(frame(Kind.DATA, 0, 1, bytes([byte])) for byte in message(b""))
    + frame(Kind.DATA, END_STREAM, 1),
    "trailers": begun() + frame(Kind.DATA, 0, 1, message(b"")) + begun(1, block([("x-end", "1")]), 5),
    "WINDOW_UPDATE of a stream that has ended": whole() + window(1, 1),
    "RST_STREAM of a stream that has ended": whole() + reset(1),
    "the same table of heads": settings({Setting.HEADER_TABLE_SIZE: 0}) * 2,
}
"""What has to be taken as it is"""
