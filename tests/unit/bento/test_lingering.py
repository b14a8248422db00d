"""Who stays is told, once; who leaves in time is not"""

from __future__ import annotations

import asyncio

from runners.bento.relay.lingering import Lingering


class Member:
    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.times = 0

    def linger(self) -> None:
        self.times += 1
        self.told.set()


def test_who_stays_is_told_once() -> None:
    async def main() -> None:
        lingering = Lingering()
        first, gone, later = Member(), Member(), Member()
        lingering.add(first)
        lingering.add(gone)
        lingering.discard(gone)
        await asyncio.wait_for(first.told.wait(), 10)
        lingering.add(later)
        await asyncio.wait_for(later.told.wait(), 10)
        assert (first.times, gone.times, later.times) == (1, 0, 1)

    asyncio.run(main())


def test_nothing_is_left_to_do_when_all_are_gone() -> None:
    async def main() -> None:
        lingering = Lingering()
        member = Member()
        lingering.add(member)
        await asyncio.wait_for(member.told.wait(), 10)
        assert lingering._timer is None
        lingering.add(member)
        assert lingering._timer is not None

    asyncio.run(main())
