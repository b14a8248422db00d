"""How engines and clients end, and who may use them: event loops, threads, processes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
import uvloop

from runners import ConnectionLost, Engine, EngineOptions, KushiError, LogOptions, ShuttingDown, Unsupported
from tests import models, standard
from tests.contract.ways import WAYS, door
from tests.forks import forked
from tests.serving import labelled, metrics
from tests.waiting import eventually

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from runners import Result
    from runners.calls import Calls

ROW = np.arange(16, dtype=np.int32).reshape(1, 16)
ONES = np.ones((1, 16), dtype=np.int32)
LONG = np.array([[20_000]])
"""What keeps the one instance of the slow model busy for some tenths of a second."""


@contextmanager
def opened(way: str, folder: Path) -> Iterator[tuple[Engine, Calls]]:
    """An engine of the test's own with the slow model, and what calls it."""
    models.write_slow(folder / "repository")
    options = EngineOptions(log=LogOptions(info=False))
    with Engine(folder / "repository", options=options) as engine, door(engine, way, folder) as calls:
        yield engine, calls


every_way = pytest.mark.parametrize("way", WAYS)


def waiting(port: int) -> float:
    return labelled(metrics(("127.0.0.1", port)), "nv_inference_pending_request_count", model="slow", version="1")


def in_flight(port: int) -> tuple[float, float]:
    """Calls that are executed, and calls that wait"""
    values = metrics(("127.0.0.1", port))
    return values["kushi_running_requests"], values["kushi_queue_requests"]


async def settled(futures: list[Future[Result]]) -> list[Result | BaseException]:
    return await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 30)


@every_way
def test_closing_ends_awaited_calls_in_flight(way: str, tmp_path: Path) -> None:
    async def main(calls: Calls) -> list[Result | BaseException]:
        futures = [calls.slow.async_run(LONG) for _ in range(3)]
        await asyncio.sleep(0)
        calls.close()
        return await settled(futures)

    with opened(way, tmp_path) as (_, calls):
        ended = asyncio.run(main(calls))
    allowed = (ShuttingDown,) if way == "engine" else (ConnectionLost,)
    assert all(isinstance(end, allowed) or not isinstance(end, BaseException) for end in ended), ended
    assert isinstance(ended[-1], allowed)


@every_way
def test_closing_ends_the_calls_of_other_threads(way: str, tmp_path: Path) -> None:
    ended: list[Result | BaseException] = []

    def ask(calls: Calls) -> None:
        try:
            ended.append(calls.slow.run(LONG))
        except KushiError as error:
            ended.append(error)

    with opened(way, tmp_path) as (engine, calls):
        port = engine.serve_metrics(port=0)
        threads = [threading.Thread(target=ask, args=[calls]) for _ in range(5)]
        for thread in threads:
            thread.start()
        eventually(lambda: waiting(port) >= 2, "some calls wait behind another")
        calls.close()
        for thread in threads:
            thread.join(30)
    assert len(ended) == 5
    errors = [end for end in ended if isinstance(end, BaseException)]
    assert errors
    assert all(type(error) is (ShuttingDown if way == "engine" else ConnectionLost) for error in errors)


@every_way
def test_leaving_a_block_closes(way: str, tmp_path: Path) -> None:
    async def leave(calls: Calls) -> None:
        async with calls as entered:
            assert entered is calls
            assert (await calls.slow.async_run([[0]]))["OUTPUT0"] == [[0]]

    with opened(way, tmp_path) as (_, calls):
        asyncio.run(leave(calls))
        closed = "the engine is closed" if way == "engine" else "the client is closed"
        with pytest.raises(KushiError, match=closed):
            calls.slow.run([[0]])
        with pytest.raises(KushiError, match=closed):
            calls.get_model_metadata("slow")


def test_an_engine_that_closes_ends_the_calls_of_its_clients(tmp_path: Path) -> None:
    async def main(engine: Engine, calls: Calls) -> list[Result | BaseException]:
        futures = [calls.slow.async_run(LONG) for _ in range(3)]
        assert await calls.async_is_server_live()
        await asyncio.to_thread(engine.close)
        return await settled(futures)

    for way in ("unix", "http"):
        folder = tmp_path / way
        folder.mkdir()
        with opened(way, folder) as (engine, calls):
            ended = asyncio.run(main(engine, calls))
            errors = [end for end in ended if isinstance(end, BaseException)]
            assert all(isinstance(error, ShuttingDown | ConnectionLost) for error in errors), ended
            with pytest.raises(ConnectionLost):
                calls.slow.run(
                    LONG,
                )


@every_way
def test_an_answer_outlives_what_it_came_from(way: str, tmp_path: Path) -> None:
    standard.write_shapes(tmp_path / "repository")
    image = np.random.default_rng(0).random((1, 3, 256, 256), dtype=np.float32)
    with opened(way, tmp_path) as (_, calls):
        output = calls.image.run(image)["OUTPUT0"]
    np.testing.assert_array_equal(output, image)
    assert not output.flags.writeable


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_any_event_loop_will_do(calls: Calls, run: Callable[..., list[int]]) -> None:
    async def main() -> list[int]:
        answers = await asyncio.gather(*(calls.add_sub.async_run(ROW + n, ONES) for n in range(200)))
        return [int(answer["OUTPUT1"][0, 0]) for answer in answers]

    assert run(main()) == list(range(-1, 199))


def test_threads_and_their_loops_share_one(calls: Calls) -> None:
    def own_loop(thread: int) -> list[int]:
        async def main() -> list[int]:
            answers = await asyncio.gather(*(calls.add_sub.async_run(ROW + n + thread, ONES) for n in range(20)))
            return [int(answer["OUTPUT1"][0, 0]) for answer in answers]

        return asyncio.run(main())

    def no_loop(thread: int) -> list[int]:
        return [int(calls.add_sub.run(ROW + n + thread, ONES)["OUTPUT1"][0, 0]) for n in range(20)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda job: job[0](job[1]), [(own_loop, n) if n % 2 else (no_loop, n) for n in range(16)])
        )
    assert answers == [list(range(thread - 1, thread + 19)) for thread in range(16)]


def test_a_future_belongs_to_the_loop_that_ran_when_it_was_made(calls: Calls) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        calls.add_sub.async_run(ROW, ONES)


@every_way
def test_a_forked_child_is_told_to_make_its_own(ways: Mapping[str, Calls], way: str) -> None:
    calls = ways[way]
    calls.add_sub.run(ROW, ONES)

    def child() -> str:
        try:
            calls.add_sub.run(ROW, ONES)
        except Unsupported as error:
            return f"{os.getpid()}: {error}"
        return "nothing"

    number, _, said = forked(child).partition(": ")
    kind = type(calls).__name__
    assert said == (
        f"this {kind} belongs to process {os.getpid()} and does not work in its forked child {number}: "
        "make it after the fork"
    )
    assert (calls.add_sub.run(ROW, ONES)["OUTPUT0"] == ROW + 1).all()


@every_way
def test_an_interrupt_ends_a_call_that_waits(way: str, tmp_path: Path) -> None:
    with opened(way, tmp_path) as (engine, calls):
        port = engine.serve_metrics(port=0)
        ended: list[KushiError] = []

        def occupy() -> None:
            try:
                calls.slow.run(3 * LONG)
            except KushiError as error:
                ended.append(error)

        def interrupt() -> None:
            # both have been made: the one that waits may be the other thread's
            eventually(lambda: in_flight(port) == (1, 1), "a call waits behind another")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        behind = [threading.Thread(target=occupy), threading.Thread(target=interrupt)]
        for thread in behind:
            thread.start()
        with pytest.raises(KeyboardInterrupt):
            calls.slow.run(3 * LONG)
        calls.close()
        engine.close()
        for thread in behind:
            thread.join(30)


def test_engines_in_one_process_know_nothing_of_each_other(tmp_path: Path) -> None:
    for name in ("first", "second"):
        models.write_add_sub(tmp_path / name, name)
    with Engine(tmp_path / "first") as first, Engine(tmp_path / "second") as second:
        assert (first.first.run(ROW, ONES)["OUTPUT0"] == second.second.run(ROW, ONES)["OUTPUT0"]).all()
        assert not hasattr(first, "second")
        first.close()
        assert (second.second.run(ROW, ONES)["OUTPUT0"] == ROW + 1).all()
