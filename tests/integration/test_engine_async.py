"""Awaited calls: one wake-up for a burst, cancellation, deadlines, and event loops that come and go."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVarTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from runners import DeadlineExceeded, Engine, EngineFailed, InvalidInput, ModelNotFound, Overloaded, Result
from tests import models
from tests.arrays import LARGE, ones, sample
from tests.gates import HELD, Gate
from tests.serving import eventually, labelled, metrics

if TYPE_CHECKING:
    from contextvars import Context

    from _typeshed import FileDescriptorLike

Array = NDArray[Any]
Args = TypeVarTuple("Args")


def steps(number: int) -> Array:
    return np.array([[number]])


NONE = steps(0)


@pytest.fixture(scope="module")
def engine(standard_repository: Path) -> Iterator[Engine]:
    with Engine(standard_repository) as opened:
        yield opened


@dataclass
class Slow:
    """A model that executes one request at a time, with room for two more in its queue"""

    engine: Engine
    metrics: tuple[str, int]
    gate: Gate

    def infer(self, inputs: Array = NONE, deadline: float | None = None) -> asyncio.Future[Result]:
        return self.engine.async_infer("slow", inputs, deadline=deadline)

    def until_waiting(self, count: int) -> None:
        name = "nv_inference_pending_request_count"
        eventually(
            lambda: labelled(metrics(self.metrics), name, model="slow", version="1") == count, f"{count} requests wait"
        )

    def occupy(self) -> asyncio.Future[Result]:
        """Comes back when the model executes, which it does until it is let go on"""
        executing = self.infer(steps(HELD))
        self.gate.until_reached()
        return executing

    def go_on(self) -> None:
        self.gate.let_through()

    def until_idle(self) -> None:
        """Comes back when the model has nothing to do"""
        assert self.engine.infer("slow", NONE)["OUTPUT0"].item() == 0


@pytest.fixture
def slow(repository: Path) -> Iterator[Slow]:
    models.write_gated(repository, extra=models.queue_policy("max_queue_size: 2"))
    with Engine(repository) as opened, Gate(repository) as gate:
        yield Slow(opened, ("127.0.0.1", opened.serve_metrics(port=0)), gate)


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


# --- answers ---


def test_an_awaited_call_answers_what_a_call_answers(engine: Engine) -> None:
    async def call() -> Result:
        return await engine.async_infer("add_sub", ones(), ones(), request_id="r1")

    result = asyncio.run(call())
    assert (result["OUTPUT0"].tolist(), result.request_id) == ([[2] * 16], "r1")
    assert result.timings is not None


def test_a_call_is_a_future_of_the_running_loop(engine: Engine) -> None:
    async def call() -> None:
        future = engine.async_infer("add_sub", ones(), ones())
        assert type(future) is type(asyncio.get_running_loop().create_future())
        assert future.get_loop() is asyncio.get_running_loop()
        assert not future.done()
        assert (await future) is future.result()

    asyncio.run(call())


def test_without_a_running_loop_there_is_no_future(engine: Engine) -> None:
    with pytest.raises(RuntimeError, match=r"^no running event loop$"):
        engine.async_infer("add_sub", ones(), ones())


def test_many_calls_at_once_are_each_answered_with_their_own(engine: Engine) -> None:
    async def call() -> list[Result]:
        return await asyncio.gather(*(engine.async_infer("add_sub", ones() * n, ones()) for n in range(500)))

    assert [result["OUTPUT0"][0, 0] for result in asyncio.run(call())] == list(range(1, 501))


@pytest.mark.parametrize(
    ("model", "inputs", "error"),
    [
        ("nope", [ones()], ModelNotFound),
        ("add_sub", [ones()], InvalidInput),
        ("add_sub", [object(), ones()], InvalidInput),
        ("gather", [np.array([[99]])], EngineFailed),
    ],
)
def test_what_is_wrong_with_a_call_is_told_by_its_future(
    engine: Engine, model: str, inputs: list[Any], error: type[Exception]
) -> None:
    async def call() -> None:
        right, wrong = (
            engine.async_infer("add_sub", ones(), ones()),
            engine.async_infer(model, *inputs, request_id="r2"),
        )
        with pytest.raises(error) as raised:
            await wrong
        assert (raised.value.model, raised.value.request_id) == (model, "r2")  # type: ignore[attr-defined]
        assert (await right)["OUTPUT0"][0, 0] == 2

    asyncio.run(call())


def test_large_inputs_are_released_when_their_calls_end(engine: Engine) -> None:
    async def call() -> None:
        sent = sample(np.float32, LARGE)
        before = sys.getrefcount(sent)
        futures = [engine.async_infer("identity_fp32", sent) for _ in range(10)]
        assert sys.getrefcount(sent) > before
        await asyncio.gather(*futures)
        assert sys.getrefcount(sent) == before

    asyncio.run(call())


# --- wake-ups ---


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


# --- cancellation ---


def test_a_cancelled_future_frees_its_place_in_the_queue(slow: Slow) -> None:
    async def call() -> None:
        executing = slow.occupy()
        waiting = [slow.infer(), slow.infer()]
        slow.until_waiting(2)
        with pytest.raises(Overloaded, match="Exceeds maximum queue size"):
            await slow.infer()
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        # the loop tells the engine
        await asyncio.sleep(0)
        slow.until_waiting(1)
        last = slow.infer()
        slow.until_waiting(2)
        waiting[1].cancel()
        executing.cancel()
        slow.go_on()
        assert (await last)["OUTPUT0"].item() == 0

    asyncio.run(call())


def test_a_cancelled_task_and_a_timeout_free_the_place_too(slow: Slow) -> None:
    async def wait() -> None:
        await slow.infer()

    async def call() -> None:
        executing = slow.occupy()
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        slow.until_waiting(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        slow.until_waiting(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow.infer(), 0.01)
        slow.until_waiting(0)
        executing.cancel()
        slow.go_on()

    asyncio.run(call())
    slow.until_idle()


def test_what_a_cancelled_call_borrowed_is_kept_until_it_has_ended(repository: Path) -> None:
    models.write_gated(repository, max_batch_size=4096, extra="")

    async def call(engine: Engine, gate: Gate) -> None:
        sent = steps(HELD).repeat(3000, axis=0)
        before = sys.getrefcount(sent)
        executing = engine.async_infer("slow", sent)
        gate.until_reached()
        executing.cancel()
        next_one = engine.async_infer("slow", NONE)
        await asyncio.sleep(0)
        assert sys.getrefcount(sent) > before
        gate.let_through()
        await next_one
        assert sys.getrefcount(sent) == before

    with Engine(repository) as engine, Gate(repository) as gate:
        asyncio.run(call(engine, gate))


def test_a_future_that_was_settled_by_its_owner_is_left_alone(slow: Slow) -> None:
    async def call() -> None:
        own = await slow.infer(steps(1))
        future = slow.infer()
        future.set_result(own)
        assert await future is own
        assert (await slow.infer(steps(3)))["OUTPUT0"].item() == 3

    asyncio.run(call())


# --- deadlines ---


def test_a_deadline_ends_a_waiting_and_an_executing_call(slow: Slow) -> None:
    async def call() -> None:
        executing = slow.infer(steps(HELD), deadline=0.2)
        slow.gate.until_reached()
        waiting = slow.infer(deadline=0.1)
        for future in (waiting, executing):
            with pytest.raises(DeadlineExceeded, match=r"^Request timeout expired$") as raised:
                await future
            assert raised.value.model == "slow"
        slow.until_waiting(0)
        slow.go_on()

    asyncio.run(call())
    slow.until_idle()


def test_the_nearest_of_many_deadlines_comes_first(slow: Slow) -> None:
    async def call() -> None:
        executing = slow.occupy()
        late, early = slow.infer(deadline=25.0), slow.infer(deadline=0.05)
        with pytest.raises(DeadlineExceeded):
            await early
        assert not late.done()
        late.cancel()
        executing.cancel()
        slow.go_on()

    asyncio.run(call())
    slow.until_idle()


def test_a_deadline_that_is_kept_changes_nothing(engine: Engine) -> None:
    async def call() -> None:
        for _ in range(3):
            calls = [engine.async_infer("add_sub", ones(), ones(), deadline=20 + n / 100) for n in range(700)]
            assert all(result["OUTPUT0"][0, 0] == 2 for result in await asyncio.gather(*calls))

    asyncio.run(call())


def test_a_queue_timeout_of_the_model_is_heard_of_without_a_deadline(repository: Path) -> None:
    models.write_gated(repository, extra=models.queue_policy("default_timeout_microseconds: 400000"))

    async def call(engine: Engine, gate: Gate) -> None:
        executing = engine.async_infer("slow", steps(HELD))
        gate.until_reached()
        with pytest.raises(DeadlineExceeded, match="Request timeout expired"):
            await engine.async_infer("slow", NONE)
        gate.let_through()
        # its own time in the queue was short
        assert (await executing)["OUTPUT0"] == HELD

    with Engine(repository) as engine, Gate(repository) as gate:
        asyncio.run(call(engine, gate))


# --- loops ---


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
