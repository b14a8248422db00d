"""Awaited calls: one wake-up for a burst, cancellation, deadlines, and event loops that come and go."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners import DeadlineExceeded, Engine, EngineFailed, InvalidInput, ModelNotFound, Overloaded, Result
from tests import models
from tests.arrays import LARGE, ones, sample
from tests.gates import HELD, Gate
from tests.integration.slow_engine import NONE, Slow, steps

if TYPE_CHECKING:
    pass


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
        # on a busy machine its time may be over before it executes: then it is asked again, with more of it
        for patience in (1, 5, 25):
            executing = slow.infer(steps(HELD), deadline=patience)
            waiting = slow.infer(deadline=0.1)
            for future in (waiting, executing):
                with pytest.raises(DeadlineExceeded, match=r"^Request timeout expired$") as raised:
                    await future
                assert raised.value.model == "slow"
            if slow.gate.is_reached():
                break
        else:
            pytest.fail("it has never executed")
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
