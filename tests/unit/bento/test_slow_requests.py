"""Who stays is told, once; who leaves in time is not"""

from __future__ import annotations

import asyncio

from runners.bento.relay.slow_requests import SlowRequests


class Member:
    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.times = 0

    def became_slow(self) -> None:
        self.times += 1
        self.told.set()


def test_who_stays_is_told_once() -> None:
    async def main() -> None:
        slow = SlowRequests()
        first, gone, later = Member(), Member(), Member()
        slow.add(first)
        slow.add(gone)
        slow.discard(gone)
        await asyncio.wait_for(first.told.wait(), 10)
        slow.add(later)
        await asyncio.wait_for(later.told.wait(), 10)
        assert (first.times, gone.times, later.times) == (1, 0, 1)

    asyncio.run(main())


def test_nothing_is_left_to_do_when_all_are_gone() -> None:
    async def main() -> None:
        slow = SlowRequests()
        member = Member()
        slow.add(member)
        await asyncio.wait_for(member.told.wait(), 10)
        assert slow._timer is None
        slow.add(member)
        assert slow._timer is not None

    asyncio.run(main())
