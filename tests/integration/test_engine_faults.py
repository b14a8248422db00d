"""An engine in this process among threads and signals, and its close."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runners import Engine, KushiError, ShuttingDown
from tests import models
from tests.arrays import LARGE, ones, sample
from tests.gates import HELD, Gate
from tests.serving import labelled, metrics
from tests.waiting import eventually

THREADS = 64
LONG = np.array([[20_000]])


# --- threads ---


def test_many_threads_call_at_once_and_each_gets_its_own_answer(engine: Engine) -> None:
    start = threading.Barrier(THREADS)

    def call(number: int) -> list[int]:
        start.wait()
        return [int(engine.infer("add_sub", ones() * number, ones() * n)["OUTPUT1"][0, 0]) for n in range(20)]

    with ThreadPoolExecutor(THREADS) as threads:
        assert list(threads.map(call, range(THREADS))) == [[number - n for n in range(20)] for number in range(THREADS)]


def test_threads_with_large_arrays_get_their_own_back(engine: Engine) -> None:
    def call(number: int) -> bool:
        sent = sample(np.float32, LARGE) + number
        outputs = [engine.infer("identity_fp32", sent)["OUTPUT0"] for _ in range(5)]
        return all(np.array_equal(output, sent) for output in outputs)

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(call, range(16)))


def test_threads_and_loops_share_batches(engine: Engine) -> None:
    def block(number: int) -> int:
        return int(engine.infer("add_sub", ones() * number, ones())["OUTPUT0"][0, 0])

    async def wait() -> list[int]:
        results = await asyncio.gather(*(engine.async_infer("add_sub", ones() * n, ones()) for n in range(200)))
        return [int(result["OUTPUT0"][0, 0]) for result in results]

    with ThreadPoolExecutor(8) as threads:
        blocked = threads.map(block, range(200))
        assert asyncio.run(wait()) == list(range(1, 201))
        assert list(blocked) == list(range(1, 201))


# --- signals ---


def test_an_interrupt_ends_a_call_that_waits_and_frees_its_place(repository: Path) -> None:
    models.write_gated(repository)
    with Engine(repository) as engine, Gate(repository) as gate:
        address = ("127.0.0.1", engine.serve_metrics(port=0))

        def waiting() -> float:
            return labelled(metrics(address), "nv_inference_pending_request_count", model="slow", version="1")

        def interrupt() -> None:
            eventually(lambda: waiting() == 1, "a call waits")
            os.kill(os.getpid(), signal.SIGINT)

        first = threading.Thread(target=engine.infer, args=("slow", np.array([[HELD]])))
        first.start()
        gate.until_reached()
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            engine.infer("slow", np.array([[0]]))
        interrupting.join()
        eventually(lambda: waiting() == 0, "nobody waits")
        gate.let_through()
        first.join()


def test_a_signal_handler_may_call_the_engine(engine: Engine, standard_repository: Path) -> None:
    answers: list[int] = []

    def handle(*_: object) -> None:
        answers.append(int(engine.infer("add_sub", ones(), ones())["OUTPUT0"][0, 0]))

    def ring(gate: Gate) -> None:
        gate.until_reached()
        os.kill(os.getpid(), signal.SIGUSR1)
        eventually(lambda: answers == [2], "the handler has its answer")
        gate.let_through()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with Gate(standard_repository) as gate, ThreadPoolExecutor(1) as threads:
            ringing = threads.submit(ring, gate)
            assert engine.infer("slow", np.array([[HELD]]))["OUTPUT0"].item() == HELD
            ringing.result()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert answers == [2]


def test_an_interrupt_ends_a_drain(repository: Path) -> None:
    models.write_gated(repository)
    with Engine(repository) as engine, ThreadPoolExecutor(1) as threads, Gate(repository) as gate:
        executing = threads.submit(engine.infer, "slow", np.array([[HELD]]))
        gate.until_reached()
        interrupting = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))

        def drain() -> None:
            interrupting.start()
            engine.drain(float("inf"))

        with pytest.raises(KeyboardInterrupt):
            drain()
        assert not executing.done()
        interrupting.join()


@pytest.mark.parametrize("seconds", [1e19, 1e300, float("inf")])
def test_a_drain_may_take_any_time(repository: Path, seconds: float) -> None:
    models.write_gated(repository)
    with Engine(repository) as engine, ThreadPoolExecutor(2) as threads, Gate(repository) as gate:
        executing = threads.submit(engine.infer, "slow", np.array([[HELD]]))
        gate.until_reached()
        draining = threads.submit(engine.drain, seconds)
        with pytest.raises(TimeoutError):
            draining.result(0.1)
        gate.let_through()
        assert draining.result() == 0
        assert executing.result()["OUTPUT0"].item() == HELD


# --- close ---


def test_close_ends_the_calls_in_flight(repository: Path) -> None:
    models.write_slow(repository)
    engine = Engine(repository)
    started = threading.Barrier(9)

    def call(_: int) -> str:
        started.wait()
        try:
            return str(engine.infer("slow", LONG)["OUTPUT0"].item())
        except KushiError as error:
            return type(error).__name__

    with ThreadPoolExecutor(8) as threads:
        waiting = threads.map(call, range(8))
        started.wait()
        engine.close()
        assert set(waiting) <= {str(LONG.item()), "ShuttingDown"}


def test_close_ends_awaited_calls_in_flight(repository: Path) -> None:
    models.write_slow(repository)

    async def call() -> list[Any]:
        engine = Engine(repository)
        futures = [engine.async_infer("slow", LONG) for _ in range(4)]
        await asyncio.to_thread(engine.close)
        return await asyncio.gather(*futures, return_exceptions=True)

    ends = asyncio.run(call())
    assert any(isinstance(end, ShuttingDown) for end in ends)
    assert all(isinstance(end, ShuttingDown) or end["OUTPUT0"].item() == LONG.item() for end in ends)
