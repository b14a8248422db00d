"""Many calls for one request: their order, how many are at work, and what is left when it ends early."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from runners import InvalidInput
from runners.bento import some_at_a_time

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


async def _taken(answers: AsyncGenerator[int, None]) -> list[int]:
    return [answer async for answer in answers]


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
