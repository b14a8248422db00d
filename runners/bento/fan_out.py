"""Many calls for one request: some at a time, and none left when the request has ended."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterable

__all__ = ["some_at_a_time"]

_Answer = TypeVar("_Answer")


async def some_at_a_time(calls: Iterable[Coroutine[Any, Any, _Answer]], most: int) -> AsyncGenerator[_Answer, None]:
    """
    What the calls answer, in their order; no more than `most` have begun and wait to be taken

    `calls` is asked for the next one when there is room for it. The first failure is raised here and ends the others,
    as an end of this generator does.
    """
    waiting = deque[asyncio.Task[_Answer]]()
    try:
        for call in calls:
            waiting.append(asyncio.create_task(call))
            if len(waiting) >= most:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for task in waiting:
            task.cancel()
        # their failures are of no interest any more
        await asyncio.gather(*waiting, return_exceptions=True)
