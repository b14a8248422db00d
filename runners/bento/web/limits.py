"""What clients may ask of a worker's port before they are refused: the numbers, and where they are set"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from ...settings import HttpOptions, ServerSettings

__all__ = ["MAX_MESSAGE_BYTES", "MAX_WEBSOCKETS", "Limits"]

MAX_MESSAGE_BYTES: Final = 1024 * 1024
MAX_WEBSOCKETS: Final = 256


@dataclass(frozen=True)
class Limits:
    """The defaults are those of the engine's own door, and the same variables set both"""

    max_head_bytes: int = HttpOptions.max_head_bytes
    max_headers: int = HttpOptions.max_headers
    max_chunks: int = HttpOptions.max_chunks
    max_connections: int = HttpOptions.max_connections
    head_seconds: float = HttpOptions.head_timeout_seconds
    """From the first byte of a request to the last of its head"""
    body_seconds: float = HttpOptions.body_timeout_seconds
    """Without progress of a body, or of an answer that the client does not read"""
    least_body_rate: int = HttpOptions.min_body_rate
    """Bytes per second, over that time: less of a body is no progress"""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_websockets: int = MAX_WEBSOCKETS
    max_empty_frames: int = 100
    """Of a WebSocket from one look to the next: pings, pongs, and fragments of a few bytes"""
    max_waiting_requests: int = 100
    """Of one connection, behind the one that is being answered; it closes after the last of them"""
    draining_seconds: float = 5.0
    """Without a byte of what a client still sends behind the last answer of its connection"""
    last_request_seconds: float = 0.25
    """That a connection without a request gets at the end of the worker to bring one"""
    last_client_seconds: float = 10.0
    """At the end of the worker: for a body to arrive, however steadily it comes, and to read on in an answer"""
    exit_seconds: float = ServerSettings.exit_timeout_seconds
    """From the end of the worker until answers that are still on their way are cut"""
    look_seconds: float = 1.0
    """From one look at all connections to the next"""

    @classmethod
    def of(cls, settings: ServerSettings, *, max_message_bytes: int, max_websockets: int) -> Self:
        http = settings.engine.http
        return cls(
            max_head_bytes=http.max_head_bytes,
            max_headers=http.max_headers,
            max_chunks=http.max_chunks,
            max_connections=http.max_connections,
            head_seconds=http.head_timeout_seconds,
            body_seconds=http.body_timeout_seconds,
            least_body_rate=http.min_body_rate,
            exit_seconds=settings.exit_timeout_seconds,
            max_message_bytes=max_message_bytes,
            max_websockets=max_websockets,
        )

    @property
    def least_body_bytes(self) -> int:
        """What has to come of a body within its time"""
        return max(1, int(self.least_body_rate * self.body_seconds))

    @property
    def too_large_head(self) -> str:
        """What a client hears of a head that is too large"""
        return (
            f"the head of the request has more than {self.max_headers} headers (KUSHI_HTTP_MAX_HEADERS) "
            f"or {self.max_head_bytes} bytes (KUSHI_HTTP_MAX_HEAD_SIZE)"
        )

    @property
    def too_many_chunks(self) -> str:
        """What a client hears of a body in too many chunks"""
        return f"the body has more than {self.max_chunks} chunks (KUSHI_HTTP_MAX_CHUNKS)"
