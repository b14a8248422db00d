"""``Client("unix://…")`` when there is no engine, and when it dies or freezes."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import uvloop

from runners import Client, errors
from tests import models
from tests.arrays import ones
from tests.gates import HELD, Gate
from tests.integration.local import EVERY_LOOP, Run, Start, works, works_awaited
from tests.integration.occupied import LONG_STEPS, until_pending
from tests.serving import DRAINING, STOP_S

if TYPE_CHECKING:
    from tests.conftest import StartServer

pytestmark = pytest.mark.clock

LONG = np.array([[LONG_STEPS]])
BEYOND_SILENCE_S = 1.5
"""Longer than any silence that is tolerated"""


@pytest.fixture
def client(socket_path: str) -> Iterator[Client]:
    with Client(f"unix://{socket_path}") as opened:
        yield opened


# --- no engine ---


def test_without_an_engine_the_error_says_what_to_do(client: Client, socket_path: str) -> None:
    async def what() -> None:
        with pytest.raises(errors.ConnectionLost, match="there is no such socket: start one") as missing:
            await client.async_infer("add_sub", ones(), request_id="seven")
        assert (missing.value.model, missing.value.request_id) == ("add_sub", "seven")

    asyncio.run(what())
    with pytest.raises(errors.ConnectionLost, match=f"'kushi serve --local-socket={socket_path}'") as lost:
        client.infer("add_sub", ones())
    assert lost.value.retryable
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(socket_path)
    with pytest.raises(errors.ConnectionLost, match="the one that made the socket has ended"):
        client.is_server_live()
    Path(socket_path).unlink()
    Path(socket_path).write_text("no socket")
    with pytest.raises(errors.ConnectionLost, match=f"unix://{socket_path} is no socket: expected the PATH of"):
        client.is_server_live()


def test_a_path_too_long_for_a_socket_is_told(tmp_path: Path) -> None:
    with (
        Client(f"unix://{tmp_path}/{'x' * 200}") as client,
        pytest.raises(errors.ConnectionLost, match=r"cannot be reached: .* too long"),
    ):
        client.is_server_live()


def test_another_kind_of_server_is_told_apart(
    repository: Path, start_server: StartServer, socket_path: str, client: Client
) -> None:
    models.write_add_sub(repository)
    start_server(repository, f"--http-socket={socket_path}")
    with pytest.raises(errors.ConnectionLost, match="sent what this client cannot read"):
        works(client)


# --- an engine that dies ---


@EVERY_LOOP
def test_an_engine_that_dies_is_a_lost_connection_and_its_successor_is_found(
    start_engine: Start, client: Client, run: Run
) -> None:
    server = start_engine()

    async def what() -> None:
        calls = [client.async_infer("slow", LONG, request_id="gone") for _ in range(3)]
        await asyncio.to_thread(until_pending, server, 2)
        await asyncio.to_thread(server.kill)
        for call in calls:
            with pytest.raises(errors.ConnectionLost, match="closed the connection") as lost:
                await call
            assert (lost.value.model, lost.value.request_id, lost.value.retryable) == ("slow", "gone", True)
        with pytest.raises(errors.ConnectionLost, match="the one that made the socket has ended"):
            await works_awaited(client)
        await asyncio.to_thread(start_engine)
        assert await works_awaited(client)

    run(what())
    assert works(client)


def test_threads_that_wait_hear_of_the_engine_that_dies(start_engine: Start, client: Client) -> None:
    server = start_engine()
    assert works(client)
    with ThreadPoolExecutor(3) as threads:
        asking = [threads.submit(client.infer, "slow", LONG) for _ in range(3)]
        until_pending(server, 2)
        server.kill()
        for done in asking:
            with pytest.raises(errors.ConnectionLost, match="closed the connection"):
                done.result()
    start_engine()
    assert works(client)


@EVERY_LOOP
def test_a_successor_is_found_although_nobody_looked_in_between(start_engine: Start, client: Client, run: Run) -> None:
    server = start_engine()

    async def what() -> None:
        assert await works_awaited(client)
        # the loop stands still: it cannot see that the old connection is gone
        server.kill()
        start_engine()
        assert await works_awaited(client)

    assert works(client)
    run(what())
    assert works(client)


def test_large_inputs_find_the_successor_too(start_engine: Start, client: Client) -> None:
    server = start_engine()
    sent = client.empty((8, 100_000), np.int32)
    with pytest.raises(errors.InvalidInput, match="unexpected shape"):
        client.infer("add_sub", sent, sent)
    server.kill()
    start_engine()
    with pytest.raises(errors.InvalidInput, match="unexpected shape"):
        client.infer("add_sub", sent, sent)


def test_an_engine_that_drains_answers_what_it_has(repository: Path, start_engine: Start, client: Client) -> None:
    server = start_engine()
    steps = [HELD, 0, 1]

    async def what(gate: Gate) -> None:
        calls = [client.async_infer("slow", np.array([[number]])) for number in steps]
        await asyncio.to_thread(gate.until_reached)
        await asyncio.to_thread(until_pending, server, 2)
        server.terminate()
        await asyncio.to_thread(server.log.wait_for, DRAINING, STOP_S)
        gate.let_through()
        assert [result["OUTPUT0"].item() for result in await asyncio.gather(*calls)] == steps

    with Gate(repository) as gate:
        asyncio.run(what(gate))


def test_a_socket_that_is_deleted_ends_no_call(start_engine: Start, client: Client, socket_path: str) -> None:
    start_engine()

    async def what() -> None:
        assert await works_awaited(client)
        Path(socket_path).unlink()
        assert await works_awaited(client)

    asyncio.run(what())
    with pytest.raises(errors.ConnectionLost, match="there is no such socket"):
        works(client)


# --- an engine that freezes ---


@EVERY_LOOP
def test_a_frozen_engine_is_given_up_and_found_again(start_engine: Start, client: Client, run: Run) -> None:
    server = start_engine()

    async def what() -> None:
        assert await works_awaited(client)
        server.freeze()
        calls = [client.async_infer("add_sub", ones(), ones(), deadline=50) for _ in range(3)]
        for call in calls:
            with pytest.raises(errors.ConnectionLost, match="does not answer: no sign of life"):
                await call
        server.thaw()
        assert await works_awaited(client)

    try:
        run(what())
    finally:
        server.thaw()


def test_threads_that_wait_give_a_frozen_engine_up(start_engine: Start, client: Client) -> None:
    server = start_engine()
    assert works(client)
    server.freeze()
    try:
        with ThreadPoolExecutor(3) as threads:
            for done in [threads.submit(works, client) for _ in range(3)]:
                with pytest.raises(errors.ConnectionLost, match="does not answer"):
                    done.result()
        with pytest.raises(errors.DeadlineExceeded):
            client.infer("add_sub", ones(), ones(), deadline=0.01)
    finally:
        server.thaw()
    assert works(client)


# takes connections and what comes on them, and says nothing
MUTE = """
import socket, sys, time
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print(flush=True)
    taken, _ = listener.accept()
    {}
"""


@pytest.mark.parametrize(
    ("does", "error", "text"),
    [
        ("while True: pass", errors.DeadlineExceeded, "Request timeout expired"),
        ("time.sleep(600)", errors.ConnectionLost, "does not answer: no sign of life"),
    ],
)
def test_silence_counts_while_the_engine_does_nothing_else(
    client: Client, socket_path: str, does: str, error: type[Exception], text: str
) -> None:
    command = [sys.executable, "-c", MUTE.format(does), socket_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as mute:
        assert mute.stdout is not None
        mute.stdout.readline()
        try:
            with pytest.raises(error, match=text):
                client.infer("add_sub", ones(), ones(), deadline=2 * BEYOND_SILENCE_S)
        finally:
            mute.kill()


def test_an_engine_that_computes_for_long_is_not_given_up(
    repository: Path, start_engine: Start, client: Client
) -> None:
    server = start_engine()
    steps = np.array([[HELD]])

    async def what() -> None:
        assert (await client.async_infer("slow", steps))["OUTPUT0"] == steps

    def wait() -> None:
        assert client.infer("slow", steps)["OUTPUT0"] == steps

    with Gate(repository) as gate, ThreadPoolExecutor(3) as threads:
        asking = [threads.submit(run, what()) for run in (asyncio.run, uvloop.run)]
        asking.append(threads.submit(wait))
        gate.until_reached()
        until_pending(server, 2)
        time.sleep(BEYOND_SILENCE_S)
        gate.close()
        for done in asking:
            done.result()


@EVERY_LOOP
def test_a_loop_that_stands_still_does_not_lose_answers_that_have_come(
    start_engine: Start, client: Client, run: Run
) -> None:
    start_engine()

    async def what() -> None:
        calls = [client.async_infer("add_sub", ones(), ones()) for _ in range(10)]
        late = client.async_infer("add_sub", ones(), ones(), deadline=1.0)
        await asyncio.sleep(0)
        # and blocks the loop
        time.sleep(BEYOND_SILENCE_S)
        for result in await asyncio.gather(*calls):
            assert result["OUTPUT0"].tolist() == [[2] * 16]
        assert (await late)["OUTPUT0"].tolist() == [[2] * 16]

    run(what())


def test_an_interrupted_call_does_not_keep_later_ones_from_being_sent(
    start_engine: Start, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_engine()
    loop = asyncio.SelectorEventLoop()
    call_soon: Callable[..., asyncio.Handle] = loop.call_soon
    call_later: Callable[..., asyncio.TimerHandle] = loop.call_later
    interrupts: list[type[BaseException]] = []

    def interrupted(*args: object, **options: object) -> asyncio.Handle:
        if interrupts:
            raise interrupts.pop()
        return call_soon(*args, **options)

    # the timers of the client would send what waits, later
    monkeypatch.setattr(loop, "call_later", lambda _delay, *args: call_later(3600, *args))
    monkeypatch.setattr(loop, "call_soon", interrupted)

    async def what() -> None:
        assert await works_awaited(client)
        interrupts.append(KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            client.async_infer("add_sub", ones(), ones())
        assert await works_awaited(client)

    task = loop.create_task(what())
    # what is never sent would be waited for for ever
    guard = threading.Timer(30, lambda: loop.call_soon_threadsafe(task.cancel))
    guard.start()
    try:
        loop.run_until_complete(task)
    finally:
        guard.cancel()
        loop.close()
