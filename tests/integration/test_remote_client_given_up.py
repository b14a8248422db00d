"""A client over HTTP and over gRPC, and calls that are given up: by a deadline, a cancellation, a signal, a loop that
closes.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners import Client, errors
from tests import models
from tests.integration.occupied import LONG_STEPS, occupy, until_pending
from tests.integration.remotes import WAYS, url_of
from tests.serving import Server

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.conftest import StartServer

LONG = np.array([[LONG_STEPS]])


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(server: Server, way: str) -> Iterator[Client]:
    with Client(url_of(server, way)) as opened:
        yield opened


def test_a_deadline_ends_an_awaited_call(client: Client) -> None:
    async def what() -> None:
        with pytest.raises(errors.DeadlineExceeded, match=r"^Request timeout expired$"):
            await client.async_infer("slow", LONG, deadline=0.05)
        with pytest.raises(errors.DeadlineExceeded):
            await client.async_get_model_metadata("slow", deadline=timedelta(microseconds=1))

    asyncio.run(what())


def test_cancelling_frees_the_places_on_the_server(repository: Path, start_server: StartServer, way: str) -> None:
    models.write_gated(repository)
    server = start_server(repository)
    client = Client(url_of(server, way))

    async def what() -> None:
        calls = [client.async_infer("slow", LONG) for _ in range(3)]
        await asyncio.to_thread(until_pending, server, 4)
        for call in calls:
            call.cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in done)
        await asyncio.to_thread(until_pending, server, 1)

    with client, occupy(server):
        asyncio.run(what())


def test_cancelling_the_task_cancels_the_call(repository: Path, start_server: StartServer, way: str) -> None:
    models.write_gated(repository)
    server = start_server(repository)
    client = Client(url_of(server, way))

    async def what() -> None:
        async def ask() -> None:
            await client.async_infer("slow", LONG)

        task = asyncio.create_task(ask())
        await asyncio.to_thread(until_pending, server, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(until_pending, server, 1)

    with client, occupy(server):
        asyncio.run(what())


def test_a_loop_that_closes_with_calls_in_flight_cancels_them(
    repository: Path, start_server: StartServer, way: str
) -> None:
    models.write_gated(repository)
    server = start_server(repository)
    client = Client(url_of(server, way))
    with client, occupy(server):
        event_loop = asyncio.new_event_loop()

        async def begin() -> None:
            for _ in range(3):
                client.async_infer("slow", LONG)
            await asyncio.to_thread(until_pending, server, 4)

        event_loop.run_until_complete(begin())
        event_loop.run_until_complete(event_loop.shutdown_default_executor())
        event_loop.close()
        del event_loop
        gc.collect()
        until_pending(server, 1)


def test_a_large_input_is_let_go_when_its_call_has_ended(client: Client) -> None:
    async def what() -> list[weakref.ref[NDArray[Any]]]:
        arrays = [np.zeros((1, 100_000), np.float32) for _ in range(4)]
        calls = [client.async_infer("identity_fp32", array) for array in arrays]
        watched = [weakref.ref(array) for array in arrays]
        arrays.clear()
        calls[3].cancel()
        await asyncio.gather(*calls[:3])
        return watched

    watched = asyncio.run(what())
    gc.collect()
    assert [ref() is None for ref in watched[:3]] == [True] * 3


def test_a_signal_ends_a_call_that_waits(repository: Path, start_server: StartServer, way: str) -> None:
    class Alarmed(Exception):
        pass

    def raise_alarmed(*_: object) -> None:
        raise Alarmed

    def alarm() -> None:
        until_pending(server, 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    models.write_gated(repository)
    server = start_server(repository)
    before = signal.signal(signal.SIGUSR1, raise_alarmed)
    try:
        with Client(url_of(server, way)) as client, occupy(server), ThreadPoolExecutor(1) as threads:
            ringing = threads.submit(alarm)
            with pytest.raises(Alarmed):
                client.infer("slow", LONG)
            ringing.result()
            until_pending(server, 1)
    finally:
        signal.signal(signal.SIGUSR1, before)
