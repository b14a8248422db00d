"""Many calls for one request: their order, how many are at work, and what is left when it ends early."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from runners import InvalidInput
from runners.fan_out import Room, some_at_a_time

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Calls:
    """Each ends when it is told to"""

    def __init__(self, count: int) -> None:
        self.begun, self.ended = list[int](), list[int]()
        self.ends = [asyncio.Event() for _ in range(count)]

    async def call(self, number: int) -> int:
        self.begun.append(number)
        try:
            await self.ends[number].wait()
        finally:
            self.ended.append(number)
        return number

    def all(self, most: int) -> AsyncGenerator[int, None]:
        return some_at_a_time((self.call(number) for number in range(len(self.ends))), most)


def test_answers_come_in_the_order_of_the_calls() -> None:
    async def run() -> list[int]:
        calls = Calls(5)
        taken = asyncio.create_task(_taken(calls.all(3)))
        for number in (2, 1, 0, 4, 3):
            await asyncio.sleep(0)
            calls.ends[number].set()
        return await taken

    assert asyncio.run(run()) == [0, 1, 2, 3, 4]


def test_no_more_than_that_many_have_begun() -> None:
    async def run() -> None:
        calls = Calls(5)
        async with aclosing(calls.all(2)) as answers:
            first = asyncio.ensure_future(anext(answers))
            await _settled()
            assert calls.begun == [0, 1]
            # the second ends first, and waits to be taken
            calls.ends[1].set()
            await _settled()
            assert calls.begun == [0, 1]
            calls.ends[0].set()
            assert await first == 0
            assert await anext(answers) == 1

    asyncio.run(run())


def test_a_failure_ends_the_others() -> None:
    async def fail() -> int:
        raise InvalidInput("no")

    async def run() -> None:
        calls = Calls(3)
        with pytest.raises(InvalidInput, match="no"):
            await _taken(some_at_a_time(iter([fail(), calls.call(0), calls.call(1)]), 3))
        assert calls.ended == calls.begun
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


def test_an_early_end_leaves_none_at_work() -> None:
    async def run() -> None:
        calls = Calls(9)
        calls.ends[0].set()
        async with aclosing(calls.all(4)) as answers:
            assert await anext(answers) == 0
            await _settled()
            assert calls.begun == [0, 1, 2, 3]
        assert sorted(calls.ended) == [0, 1, 2, 3]
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


def test_who_waits_may_be_cancelled() -> None:
    async def run() -> None:
        calls = Calls(4)
        taken = asyncio.create_task(_taken(calls.all(2)))
        await _settled()
        taken.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taken
        assert sorted(calls.ended) == [0, 1]

    asyncio.run(run())


def test_the_lowest_turn_goes_first_and_of_equal_ones_the_first() -> None:
    async def run() -> list[str]:
        room, order = Room(1), list[str]()

        async def use(name: str, turn: int) -> None:
            async with room.taken(turn):
                order.append(name)
                await asyncio.sleep(0)

        async with room.taken():
            uses = [use("late", 3), use("first", 0), use("later", 3), use("second", 0)]
            tasks = [asyncio.create_task(one) for one in uses]
            await _settled()
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(run()) == ["first", "second", "late", "later"]


@pytest.mark.parametrize("given", [False, True])
def test_room_is_kept_whenever_who_waits_is_cancelled(given: bool) -> None:
    async def run() -> None:
        room = Room(1)

        async def use() -> None:
            async with room.taken():
                await asyncio.Event().wait()

        async with room.taken():
            waiting = asyncio.create_task(use())
            await _settled()
            if not given:
                waiting.cancel()
        # its place was given to it, and it has not yet heard of that
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with asyncio.timeout(10), room.taken():
            pass

    asyncio.run(run())


async def _taken(answers: AsyncGenerator[int, None]) -> list[int]:
    return [answer async for answer in answers]


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
