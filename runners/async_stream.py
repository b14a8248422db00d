"""The answers of a stream in an event loop"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

from .errors import DeadlineExceeded

if TYPE_CHECKING:
    from types import TracebackType

    from kushi_native import Result, Stream

__all__ = ["AsyncStream"]


class AsyncStream:
    """An asynchronous iterator over the answers to one request; it belongs to one task at a time"""

    def __init__(self, native: Stream) -> None:
        self._native = native

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Result:
        while True:
            answer = self._native.take()
            if answer is not None:
                return answer
            # whether its time is over, or only that in a queue, is found out by taking again
            with suppress(DeadlineExceeded):
                await self._native.come()

    async def aclose(self) -> None:
        """Tells the model that nobody waits for the rest"""
        self._native.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
