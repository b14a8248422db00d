"""``Client("unix://…")`` and a call that is given up: by a deadline, a cancellation, a signal, a loop that closes."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners import Client, errors
from tests import models
from tests.integration.local import EVERY_LOOP, Run
from tests.integration.occupied import LONG_STEPS, occupy, until_pending

if TYPE_CHECKING:
    from tests.conftest import StartServer

LONG = np.array([[LONG_STEPS]])


@pytest.mark.clock
def test_a_deadline_covers_the_time_in_the_queue_and_in_the_engine(
    repository: Path, start_server: StartServer, socket_path: str
) -> None:
    models.write_gated(repository)
    server = start_server(repository, f"--local-socket={socket_path}")

    async def what(client: Client) -> None:
        calls = [client.async_infer("slow", LONG, deadline=0.05, request_id="late") for _ in range(3)]
        for call in calls:
            with pytest.raises(errors.DeadlineExceeded, match="Request timeout expired") as late:
                await call
            assert (late.value.model, late.value.request_id) == ("slow", "late")
        server.freeze()
        try:
            with pytest.raises(errors.DeadlineExceeded):
                await client.async_get_model_metadata("slow", deadline=timedelta(milliseconds=50))
        finally:
            server.thaw()

    with Client(f"unix://{socket_path}") as client:
        asyncio.run(what(client))
        with pytest.raises(errors.DeadlineExceeded):
            client.infer("slow", LONG, deadline=0.05)
        # the others gave their places back
        until_pending(server, 0)
        assert client.infer("slow", np.array([[0]]), deadline=30)["OUTPUT0"] == 0


@EVERY_LOOP
def test_cancelling_frees_the_places_on_the_server(
    repository: Path, start_server: StartServer, socket_path: str, run: Run
) -> None:
    models.write_gated(repository)
    server = start_server(repository, f"--local-socket={socket_path}")

    async def what(client: Client) -> None:
        calls = [client.async_infer("slow", LONG) for _ in range(3)]
        task = asyncio.create_task(ask(client))
        await asyncio.to_thread(until_pending, server, 5)
        for call in calls:
            call.cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in done)
        await asyncio.to_thread(until_pending, server, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(until_pending, server, 1)

    async def ask(client: Client) -> None:
        await client.async_infer("slow", LONG)

    with Client(f"unix://{socket_path}") as client, occupy(server):
        run(what(client))


@EVERY_LOOP
def test_a_loop_that_closes_with_calls_in_flight_cancels_them(
    repository: Path, start_server: StartServer, socket_path: str, run: Run
) -> None:
    models.write_gated(repository)
    server = start_server(repository, f"--local-socket={socket_path}")
    watched: list[weakref.ref[Any]] = []

    async def begin(client: Client) -> None:
        calls = [client.async_infer("slow", LONG) for _ in range(3)]
        await asyncio.to_thread(until_pending, server, 4)
        watched.extend(weakref.ref(call) for call in calls)

    with Client(f"unix://{socket_path}") as client, occupy(server):
        run(begin(client))
        gc.collect()
        until_pending(server, 1)
        assert [ref() for ref in watched] == [None] * 3
        assert asyncio.run(client.async_is_server_live())


def test_a_signal_ends_a_call_that_waits(repository: Path, start_server: StartServer, socket_path: str) -> None:
    models.write_gated(repository)
    server = start_server(repository, f"--local-socket={socket_path}")

    class Rung(Exception):
        pass

    def raise_rung(*_: object) -> None:
        raise Rung

    def ring() -> None:
        until_pending(server, 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, raise_rung)
    try:
        with (
            Client(f"unix://{socket_path}") as client,
            occupy(server),
            ThreadPoolExecutor(1) as threads,
        ):
            ringing = threads.submit(ring)
            with pytest.raises(Rung):
                client.infer("slow", LONG)
            ringing.result()
            until_pending(server, 1)
    finally:
        signal.signal(signal.SIGUSR1, before)
