"""Awaited calls and the event loops that they belong to: wake-ups, loops that come and go, loops in several threads."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVarTuple

import numpy as np
import pytest

from runners import Engine, Result
from tests import models
from tests.arrays import LARGE, ones, sample
from tests.integration.slow_engine import Slow, steps

if TYPE_CHECKING:
    from contextvars import Context

    from _typeshed import FileDescriptorLike


Args = TypeVarTuple("Args")


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts how often each reader that is not its own is called"""

    def __init__(self) -> None:
        super().__init__()
        self.woken = 0

    def add_reader(self, fd: FileDescriptorLike, callback: Callable[[*Args], object], *args: *Args) -> None:
        def counted(*arguments: *Args) -> None:
            self.woken += 1
            callback(*arguments)

        super().add_reader(fd, counted, *args)


def test_a_burst_of_answers_wakes_the_loop_once(repository: Path) -> None:
    policy = "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 20000000 }"
    models.write_add_sub(repository, extra=policy)

    async def call(engine: Engine, loop: CountingLoop) -> None:
        for _ in range(3):
            before = loop.woken
            await asyncio.gather(*(engine.async_infer("add_sub", ones(), ones()) for _ in range(8)))
            assert loop.woken - before == 1

    with Engine(repository) as engine, asyncio.Runner(loop_factory=CountingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        runner.run(call(engine, loop))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_answers_are_told_ends_the_loop(repository: Path, kind: type[BaseException]) -> None:
    policy = "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 20000000 }"
    models.write_add_sub(repository, extra=policy)

    class Interrupted(asyncio.SelectorEventLoop):
        """As if a signal came while it is told of the first answer of a burst"""

        armed = False

        def call_soon(
            self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
        ) -> asyncio.Handle:
            if self.armed:
                self.armed = False
                raise kind
            return super().call_soon(callback, *args, context=context)

    loop = Interrupted()

    async def begin(engine: Engine) -> list[asyncio.Future[Result]]:
        futures = [engine.async_infer("add_sub", ones() * n, ones()) for n in range(8)]
        for future in futures:
            future.add_done_callback(lambda _: None)
        loop.armed = True
        return futures

    with Engine(repository) as engine:
        begun = loop.create_task(begin(engine))
        with pytest.raises(kind):
            loop.run_forever()
        assert [future.result()["OUTPUT0"][0, 0] for future in begun.result()] == list(range(1, 9))
    loop.close()


def test_several_loops_in_several_threads_each_get_their_own_answers(engine: Engine) -> None:
    async def calls(offset: int) -> list[int]:
        answers = []
        for _ in range(5):
            burst = (engine.async_infer("add_sub", ones() * (offset + n), ones()) for n in range(20))
            answers += [int(result["OUTPUT1"][0, 0]) for result in await asyncio.gather(*burst)]
        return answers

    with ThreadPoolExecutor(6) as threads:
        offsets = range(0, 6000, 1000)
        found = threads.map(lambda offset: asyncio.run(calls(offset)), offsets)
        assert list(found) == [[offset + n - 1 for n in range(20)] * 5 for offset in offsets]


def test_one_loop_after_the_other_on_the_same_engine(engine: Engine) -> None:
    async def call() -> int:
        return int((await engine.async_infer("add_sub", ones(), ones()))["OUTPUT0"][0, 0])

    assert [asyncio.run(call()) for _ in range(30)] == [2] * 30


def test_a_loop_that_closes_with_calls_in_flight_gives_their_places_back(slow: Slow) -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> list[asyncio.Future[Result]]:
        executing = slow.occupy()
        waiting = [slow.infer(), slow.infer()]
        slow.until_waiting(2)
        return [executing, *waiting]

    futures = loop.run_until_complete(begin())
    loop.close()
    slow.until_waiting(0)
    slow.go_on()
    slow.until_idle()
    assert not any(future.done() for future in futures)

    async def again() -> None:
        assert (await slow.infer(steps(1)))["OUTPUT0"].item() == 1

    asyncio.run(again())


def test_a_closed_loop_and_its_futures_are_freed(slow: Slow) -> None:
    loop = asyncio.new_event_loop()
    sent = sample(np.float32, LARGE)

    async def begin() -> asyncio.Future[Result]:
        return slow.occupy()

    future = loop.run_until_complete(begin())
    loop.close()
    gone: list[weakref.ref[Any]] = [weakref.ref(loop), weakref.ref(future)]
    del loop, future
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    del sent
    slow.go_on()
    slow.until_idle()


def test_a_loop_that_is_never_closed_is_freed_with_its_calls(slow: Slow) -> None:
    class Loop(asyncio.SelectorEventLoop):
        def __del__(self, _warn: object = None) -> None:
            """Does not close itself, other than asyncio's"""

    loop = Loop()

    async def begin() -> asyncio.Future[Result]:
        slow.occupy()
        return slow.infer()

    future = loop.run_until_complete(begin())
    gone: list[weakref.ref[Any]] = [weakref.ref(loop), weakref.ref(future)]
    sockets = (loop._ssock, loop._csock)  # type: ignore[attr-defined]
    del loop, future
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    slow.until_waiting(0)
    for end in sockets:
        end.close()
    slow.go_on()
    slow.until_idle()


def test_calls_of_one_loop_do_not_wait_for_a_busy_thread_of_python(engine: Engine) -> None:
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            sum(range(100))

    async def call() -> None:
        for _ in range(20):
            await asyncio.gather(*(engine.async_infer("add_sub", ones(), ones()) for _ in range(8)))

    burning = threading.Thread(target=burn)
    burning.start()
    try:
        asyncio.run(call())
    finally:
        stop.set()
        burning.join()
