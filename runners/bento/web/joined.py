"""
Head and body of an answer in one write. uvicorn writes them one after the other: two packets for the client to wake up
for, and two of the dearest calls in a short answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

if TYPE_CHECKING:
    import asyncio

    from .asgi import Message, Send

__all__ = ["joined"]

# Of a longer one, the copy costs as much as the write that it saves.
_MOST_JOINED_BYTES: Final = 64 * 1024


def joined(send: Send) -> Send:
    """What to send with in the place of uvicorn's `send`; the same under another server"""
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle):
        return send
    head: Message | None = None

    async def sent(message: Message) -> None:
        nonlocal head
        # One whose length nobody knows is a stream, of which the client shall see the head before there is more.
        if message["type"] == "http.response.start" and _has_length(message):
            head = message
            return
        if head is None:
            await send(message)
            return
        start, head = head, None
        if len(message.get("body", b"")) > _MOST_JOINED_BYTES:
            await send(start)
            await send(message)
            return
        transport = cycle.transport
        collected = _Collected(transport)
        cycle.transport = collected  # type: ignore[assignment]
        try:
            await send(start)
            await send(message)
        finally:
            cycle.transport = transport
            collected.flush()

    return sent


def _has_length(message: Message) -> bool:
    return any(name == b"content-length" for name, _ in message.get("headers", ()))


class _Collected:
    """What a cycle uses of its transport"""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._pieces.append(data)

    def flush(self) -> None:
        if self._pieces:
            self._transport.write(b"".join(self._pieces))
            self._pieces.clear()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
