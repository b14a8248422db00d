"""``Client("unix://…")`` when the client is closed, and when its process forks or ends."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import uvloop

from runners import Client, errors
from tests.arrays import ones
from tests.integration.local import EVERY_LOOP, Run, Start, descriptors, works
from tests.integration.occupied import LONG_STEPS, until_pending
from tests.serving import ROOT, Server
from tests.waiting import settles

LONG = np.array([[LONG_STEPS]])


@pytest.fixture
def client(socket_path: str) -> Iterator[Client]:
    with Client(f"unix://{socket_path}") as opened:
        yield opened


@EVERY_LOOP
def test_closing_ends_calls_in_flight(start_engine: Start, client: Client, run: Run) -> None:
    start_engine()

    async def what() -> None:
        calls = [client.async_infer("slow", LONG) for _ in range(3)]
        await client.async_is_server_live()
        calls.append(client.async_infer("slow", LONG))
        client.close()
        for call in calls:
            with pytest.raises(errors.ConnectionLost, match="the client is closed"):
                await call
        with pytest.raises(errors.ConnectionLost, match="the client is closed"):
            await client.async_infer("slow", LONG)

    run(what())
    client.close()
    for call in (client.is_server_live, lambda: works(client)):
        with pytest.raises(errors.ConnectionLost, match="the client is closed"):
            call()  # type: ignore[no-untyped-call]


def test_closing_ends_calls_of_other_threads_and_loops(start_engine: Start, client: Client) -> None:
    server = start_engine()

    def ask() -> None:
        with pytest.raises(errors.ConnectionLost, match="the client is closed"):
            client.infer("slow", LONG)

    async def ask_awaited() -> None:
        with pytest.raises(errors.ConnectionLost, match="the client is closed"):
            await client.async_infer("slow", LONG)

    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask) for _ in range(2)]
        asking += [threads.submit(run, ask_awaited()) for run in (asyncio.run, uvloop.run)]
        until_pending(server, 3)
        client.close()
        for done in asking:
            done.result()
    until_pending(server, 0)


def script(text: str, socket_path: str, server: Server | None = None) -> subprocess.CompletedProcess[str]:
    """A program with a client of its own, as a process of its own."""
    head = f"""
import asyncio, os, sys, threading
import numpy as np
from runners import Client, errors
client = Client("unix://{socket_path}")
ones = np.ones((1, 16), np.int32)
def works(client=client):
    return bool((client.infer("add_sub", ones, ones)["OUTPUT0"] == 2).all())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", head + text],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=45,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


FORKED = """
def forked(child, leave):
    process = os.fork()
    if not process:
        try:
            child()
        except BaseException as error:
            print(error, flush=True)
            os._exit(1)
        leave(0)
    return os.waitpid(process, 0)[1]

def refused(call):
    try:
        call()
    except errors.Unsupported as error:
        assert "make it after the fork" in str(error), error
    else:
        raise AssertionError("it was not refused")

def child():
    refused(works)
    refused(lambda: client.empty((5, 100_000), "float32"))
    refused(lambda: client.is_server_live())
    refused(lambda: asyncio.run(ask()))
    kept[0][...] = 1
    with Client(client.url) as own:
        assert works(own)
    kept.clear()

async def ask():
    return await client.async_infer("add_sub", ones, ones)

kept = [client.empty((5, 100_000), "float32")]
assert works()
assert asyncio.run(ask())
assert forked(child, {leave}) == 0
assert works()

async def forks():
    call = client.async_infer("slow", np.array([[2000]]))
    await client.async_is_server_live()
    # a loop that is left in the child would take its parent's file descriptors from the selector that they share
    assert forked(lambda: None, os._exit) == 0
    assert (await call)["OUTPUT0"] == 2000
    assert await ask()
asyncio.run(forks())
assert works()
"""


@pytest.mark.parametrize("leave", ["os._exit", "sys.exit"])
def test_a_forked_child_is_told_to_make_its_own_and_does_its_parent_no_harm(
    start_engine: Start, socket_path: str, leave: str
) -> None:
    start_engine()
    script(FORKED.format(leave=leave), socket_path)


@pytest.mark.parametrize(
    "text",
    [
        # a thread that waits while the program ends
        """
threading.Thread(target=lambda: client.infer("slow", np.array([[400_000]])), daemon=True).start()
while not client.get_inference_statistics("slow")["model_stats"][0]["inference_count"]:
    break
client.is_server_live()
""",
        # a loop that is left with calls in flight
        """
async def what():
    calls = [client.async_infer("slow", np.array([[400_000]])) for _ in range(3)]
    await client.async_is_server_live()
asyncio.run(what())
""",
        # a loop that is never closed
        """
import warnings
warnings.simplefilter("ignore", ResourceWarning)
loop = asyncio.new_event_loop()
calls = []
async def what():
    calls.extend(client.async_infer("slow", np.array([[400_000]])) for _ in range(3))
    calls.append(client.async_infer("add_sub", client.empty((1, 16), "int32"), ones))
    await client.async_is_server_live()
loop.run_until_complete(what())
""",
        # a loop that runs in another thread
        """
async def what():
    started.set()
    await client.async_infer("slow", np.array([[400_000]]))
started = threading.Event()
threading.Thread(target=lambda: asyncio.run(what()), daemon=True).start()
started.wait()
""",
    ],
    ids=["thread", "closed loop", "open loop", "loop of a thread"],
)
def test_a_program_may_end_with_calls_in_flight(start_engine: Start, socket_path: str, text: str) -> None:
    server = start_engine()
    done = script(text, socket_path)
    assert done.stderr == ""
    until_pending(server, 0)
    server.kill()


@pytest.mark.clock
def test_a_client_serves_while_other_threads_use_and_leave_it(start_engine: Start, client: Client) -> None:
    start_engine()
    before = descriptors()
    stop = threading.Event()

    async def ask() -> None:
        call = client.async_infer("add_sub", ones(), ones())
        client.async_infer("add_sub", ones(), ones()).cancel()
        assert (await call)["OUTPUT0"][0, 0] == 2

    def churn(run: Callable[[Any], Any]) -> int:
        count = 0
        while not stop.is_set():
            run(ask())
            count += 1
        return count

    with ThreadPoolExecutor(4) as threads:
        churning = [threads.submit(churn, run) for run in (asyncio.run, uvloop.run) * 2]
        try:
            for _ in range(300):
                assert works(client)
        finally:
            stop.set()
        assert all(done.result() > 0 for done in churning)
    # what a loop leaves goes with the loop
    gc.collect()
    settles(lambda: descriptors() < before + 100, "the streams are closed")
