"""A client of HTTP/2 that sends any frames, in any order, and shows each frame that comes"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Self

from tests.hpack import block, read_block
from tests.waiting import LateAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.raw_http import Address

__all__ = [
    "ACK",
    "END_HEADERS",
    "END_STREAM",
    "FIRST_WINDOW",
    "PADDED",
    "PREFACE",
    "PRIORITY",
    "Code",
    "Frame",
    "Http2",
    "Kind",
    "Setting",
    "frame",
    "head",
    "message",
    "settings",
]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FIRST_WINDOW: Final = (1 << 16) - 1
LARGEST_WINDOW: Final = (1 << 31) - 1
FRAME_BYTES: Final = 1 << 14
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 32


class Kind(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Code(IntEnum):
    """Why a stream or a connection ends"""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> Code:
        """Of a GOAWAY or a RST_STREAM"""
        assert self.kind in {Kind.GOAWAY, Kind.RST_STREAM}, self
        at = 4 if self.kind == Kind.GOAWAY else 0
        return Code(int.from_bytes(self.payload[at : at + 4]))

    @property
    def last_stream(self) -> int:
        """Of a GOAWAY"""
        return int.from_bytes(self.payload[:4])

    @property
    def fields(self) -> dict[str, str]:
        """Of a HEADERS frame"""
        assert self.kind == Kind.HEADERS, self
        assert self.flags & END_HEADERS, self
        return read_block(self.payload)

    @property
    def settings(self) -> dict[int, int]:
        return dict(struct.iter_unpack(">HI", self.payload))


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def settings(values: Mapping[int, int]) -> bytes:
    return frame(Kind.SETTINGS, payload=b"".join(struct.pack(">HI", key, value) for key, value in values.items()))


def head(
    path: str,
    metadata: Iterable[tuple[str, str]] = (),
    *,
    method: str = "POST",
    content_type: str = "application/grpc",
) -> bytes:
    """The block of a call's head"""
    fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")]
    return block([*fields, ("content-type", content_type), ("te", "trailers"), *metadata])


def message(body: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """A message of gRPC, which may lie about its length"""
    return bytes([compressed]) + (len(body) if length is None else length).to_bytes(4) + body


class Http2:
    """
    One connection, on which SETTINGS have been exchanged unless `shakes` says otherwise.

    What comes is read frame by frame. SETTINGS and pings are answered in passing; they are shown like all others.
    """

    def __init__(
        self,
        address: Address,
        values: Mapping[int, int] | None = None,
        *,
        window: int = LARGEST_WINDOW,
        shakes: bool = True,
        answers_pings: bool = True,
        timeout: float = 30,
    ) -> None:
        self.socket = socket.create_connection(address, timeout) if isinstance(address, tuple) else socket.socket()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers_pings = answers_pings
        self.buffer = b""
        self.given: dict[int, int] = {}
        if shakes:
            # no table: whoever reads heads here keeps none
            chosen = {Setting.HEADER_TABLE_SIZE: 0, Setting.INITIAL_WINDOW_SIZE: window, **(values or {})}
            self.send(PREFACE + settings(chosen))
            if window == LARGEST_WINDOW:
                self.grant(0, window - FIRST_WINDOW)
            first = self.next()
            assert first is not None
            self.given = first.settings
            # more room than at first, which what is sent here may need
            assert self.until_kind(Kind.WINDOW_UPDATE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *pieces: bytes) -> None:
        self.socket.sendall(b"".join(pieces))

    def begin(self, stream: int, path: str, metadata: Iterable[tuple[str, str]] = (), *, end: bool = False) -> None:
        self.send(frame(Kind.HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, head(path, metadata)))

    def grant(self, stream: int, room: int) -> None:
        self.send(frame(Kind.WINDOW_UPDATE, stream=stream, payload=room.to_bytes(4)))

    def data(self, stream: int, payload: bytes, *, end: bool = True) -> None:
        """In frames of a size that every server takes, without a look at the room for them"""
        parts = [payload[at : at + FRAME_BYTES] for at in range(0, len(payload), FRAME_BYTES)] or [b""]
        self.send(*(frame(Kind.DATA, 0, stream, part) for part in parts[:-1]))
        self.send(frame(Kind.DATA, END_STREAM if end else 0, stream, parts[-1]))

    def ask(self, stream: int, path: str, body: bytes, metadata: Iterable[tuple[str, str]] = ()) -> None:
        """A whole call with one message, in one write where that is short"""
        sent = frame(Kind.HEADERS, END_HEADERS, stream, head(path, metadata))
        if len(body) < FRAME_BYTES - 5:
            self.send(sent, frame(Kind.DATA, END_STREAM, stream, message(body)))
        else:
            self.send(sent)
            self.data(stream, message(body))

    def next(self) -> Frame | None:
        """None at the end of the connection"""
        if (start := self._take(9)) is None:
            return None
        payload = self._take(int.from_bytes(start[:3]))
        if payload is None:
            return None
        found = Frame(start[3], start[4], int.from_bytes(start[5:]) & 0x7FFFFFFF, payload)
        if found.kind == Kind.SETTINGS and not found.flags & ACK:
            self._answer(frame(Kind.SETTINGS, ACK))
        if found.kind == Kind.PING and not found.flags & ACK and self.answers_pings:
            self._answer(frame(Kind.PING, ACK, payload=found.payload))
        return found

    def until(self, is_wanted: Callable[[Frame], bool]) -> Frame | None:
        """The next frame like this, None where the connection ends before it"""
        while (found := self.next()) is not None:
            if is_wanted(found):
                return found
        return None

    def until_kind(self, *kinds: Kind) -> Frame | None:
        return self.until(lambda found: found.kind in kinds)

    def rest(self) -> list[Frame]:
        """All that comes until the end of the connection"""
        frames = []
        while (found := self.next()) is not None:
            frames.append(found)
        return frames

    def ending(self, stream: int) -> dict[str, str] | Code:
        """The trailers of a call, or the code with which it is reset"""
        found = self.until(
            lambda one: one.stream == stream and (one.kind == Kind.RST_STREAM or bool(one.flags & END_STREAM))
        )
        assert found is not None, "the connection ended before the call"
        if found.kind == Kind.RST_STREAM:
            return found.code
        return found.fields

    def status(self, stream: int) -> int:
        ending = self.ending(stream)
        assert isinstance(ending, dict), ending
        return int(ending["grpc-status"])

    def is_answered(self, payload: bytes = b"to prove") -> bool:
        """Whether the server is at what was sent: all before a ping has been read when it is answered"""
        self.send(frame(Kind.PING, payload=payload))
        return self.until(lambda one: one.kind == Kind.PING and one.payload == payload) is not None

    def _answer(self, data: bytes) -> None:
        # it may have left, and what it has said before is read on
        with suppress(OSError):
            self.send(data)

    def _take(self, count: int) -> bytes | None:
        while len(self.buffer) < count:
            try:
                came = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            except TimeoutError as error:
                raise LateAnswer(f"the server has sent no more than {self.buffer[:1000]!r}") from error
            if not came:
                return None
            self.buffer += came
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken
