"""Many calls at a time: for one request some, whose end is its end; of many requests those that have waited least."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable

__all__ = ["Room", "some_at_a_time"]

_Answer = TypeVar("_Answer")


async def some_at_a_time(calls: Iterable[Coroutine[Any, Any, _Answer]], most: int) -> AsyncGenerator[_Answer, None]:
    """
    What the calls answer, in their order; no more than `most` have begun and wait to be taken

    `calls` is asked for the next one when there is room for it. The first failure is raised here and ends the others,
    as an end of this generator does: who stops before its last answer closes it, with `contextlib.aclosing`.
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


class Room:
    """For so many at a time. Of those that wait the one with the lowest turn goes first, and of equal ones the first"""

    def __init__(self, most: int) -> None:
        self._free = most
        self._order = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def taken(self, turn: int = 0) -> AsyncIterator[None]:
        if self._free:
            self._free -= 1
        else:
            place = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (turn, next(self._order), place))
            try:
                await place
            except asyncio.CancelledError:
                if not place.cancelled():
                    # it was given at the same moment
                    self._give_back()
                raise
        try:
            yield
        finally:
            self._give_back()

    def _give_back(self) -> None:
        while self._waiting:
            *_, place = heapq.heappop(self._waiting)
            if not place.done():
                place.set_result(None)
                return
        self._free += 1
