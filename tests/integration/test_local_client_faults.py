"""``Client("unix://…")`` when the engine, the socket, the loop or the process goes away."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import uvloop

from runners import Client, errors
from tests import models
from tests.arrays import ones
from tests.integration.occupied import LONG_STEPS, until_pending
from tests.serving import ROOT, Server, eventually

if TYPE_CHECKING:
    from tests.conftest import StartServer

Run = Callable[[Awaitable[None]], None]

LONG = np.array([[LONG_STEPS]])
EVERY_LOOP = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])


@pytest.fixture
def socket_path() -> Iterator[str]:
    """Short enough for the address of a socket."""
    with tempfile.TemporaryDirectory(prefix="kushi-") as folder:
        yield f"{folder}/door"


@pytest.fixture
def client(socket_path: str) -> Iterator[Client]:
    with Client(f"unix://{socket_path}") as opened:
        yield opened


@pytest.fixture
def start(repository: Path, start_server: StartServer, socket_path: str) -> Callable[[], Server]:
    """Starts a server with a slow and a quick model; a later one takes the place of an earlier."""
    models.write_slow(repository)
    models.write_add_sub(repository)
    return lambda: start_server(repository, f"--local-socket={socket_path}")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def works(client: Client) -> bool:
    answer = client.infer("add_sub", ones(), ones())["OUTPUT0"]
    return bool((answer == 2).all())


async def works_awaited(client: Client) -> bool:
    answer = (await client.async_infer("add_sub", ones(), ones()))["OUTPUT0"]
    return bool((answer == 2).all())


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
    start: Callable[[], Server], client: Client, run: Run
) -> None:
    server = start()

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
        await asyncio.to_thread(start)
        assert await works_awaited(client)

    run(what())
    assert works(client)


def test_threads_that_wait_hear_of_the_engine_that_dies(start: Callable[[], Server], client: Client) -> None:
    server = start()
    assert works(client)
    with ThreadPoolExecutor(3) as threads:
        asking = [threads.submit(client.infer, "slow", LONG) for _ in range(3)]
        until_pending(server, 2)
        server.kill()
        for done in asking:
            with pytest.raises(errors.ConnectionLost, match="closed the connection"):
                done.result()
    start()
    assert works(client)


@EVERY_LOOP
def test_a_successor_is_found_although_nobody_looked_in_between(
    start: Callable[[], Server], client: Client, run: Run
) -> None:
    server = start()

    async def what() -> None:
        assert await works_awaited(client)
        # the loop stands still: it cannot see that the old connection is gone
        server.kill()
        start()
        assert await works_awaited(client)

    assert works(client)
    run(what())
    assert works(client)


def test_large_inputs_find_the_successor_too(start: Callable[[], Server], client: Client) -> None:
    server = start()
    sent = client.empty((8, 100_000), np.int32)
    with pytest.raises(errors.InvalidInput, match="unexpected shape"):
        client.infer("add_sub", sent, sent)
    server.kill()
    start()
    with pytest.raises(errors.InvalidInput, match="unexpected shape"):
        client.infer("add_sub", sent, sent)


def test_an_engine_that_drains_answers_what_it_has(start: Callable[[], Server], client: Client) -> None:
    server = start()
    steps = [LONG_STEPS, 0, 1]

    async def what() -> None:
        calls = [client.async_infer("slow", np.array([[number]])) for number in steps]
        await asyncio.to_thread(until_pending, server, 2)
        server.terminate()
        assert [result["OUTPUT0"].item() for result in await asyncio.gather(*calls)] == steps

    asyncio.run(what())


def test_a_socket_that_is_deleted_ends_no_call(start: Callable[[], Server], client: Client, socket_path: str) -> None:
    start()

    async def what() -> None:
        assert await works_awaited(client)
        Path(socket_path).unlink()
        assert await works_awaited(client)

    asyncio.run(what())
    with pytest.raises(errors.ConnectionLost, match="there is no such socket"):
        works(client)


# --- an engine that freezes ---


@EVERY_LOOP
def test_a_frozen_engine_is_given_up_and_found_again(start: Callable[[], Server], client: Client, run: Run) -> None:
    server = start()

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


def test_threads_that_wait_give_a_frozen_engine_up(start: Callable[[], Server], client: Client) -> None:
    server = start()
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


def test_an_engine_that_computes_for_long_is_not_given_up(start: Callable[[], Server], client: Client) -> None:
    start()
    # longer than any silence that is tolerated
    steps = np.array([[3 * LONG_STEPS // 2]])

    async def what() -> None:
        assert (await client.async_infer("slow", steps))["OUTPUT0"] == steps

    with ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(run, what()) for run in (asyncio.run, uvloop.run)]
        assert client.infer("slow", steps)["OUTPUT0"] == steps
        for done in asking:
            done.result()


@EVERY_LOOP
def test_a_loop_that_stands_still_does_not_lose_answers_that_have_come(
    start: Callable[[], Server], client: Client, run: Run
) -> None:
    start()

    async def what() -> None:
        calls = [client.async_infer("add_sub", ones(), ones()) for _ in range(10)]
        late = client.async_infer("add_sub", ones(), ones(), deadline=1.5)
        await asyncio.sleep(0)
        # for longer than any silence that is tolerated
        client.infer("slow", 3 * LONG)
        for result in await asyncio.gather(*calls):
            assert result["OUTPUT0"].tolist() == [[2] * 16]
        assert (await late)["OUTPUT0"].tolist() == [[2] * 16]

    run(what())


def test_an_interrupted_call_does_not_keep_later_ones_from_being_sent(
    start: Callable[[], Server], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
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


# --- a client that ends ---


@EVERY_LOOP
def test_closing_ends_calls_in_flight(start: Callable[[], Server], client: Client, run: Run) -> None:
    start()

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


def test_closing_ends_calls_of_other_threads_and_loops(start: Callable[[], Server], client: Client) -> None:
    server = start()

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
    start: Callable[[], Server], socket_path: str, leave: str
) -> None:
    start()
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
def test_a_program_may_end_with_calls_in_flight(start: Callable[[], Server], socket_path: str, text: str) -> None:
    server = start()
    done = script(text, socket_path)
    assert done.stderr == ""
    until_pending(server, 0)
    server.kill()


def test_a_client_serves_while_other_threads_use_and_leave_it(start: Callable[[], Server], client: Client) -> None:
    start()
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
    eventually(lambda: descriptors() < before + 100, "the streams are closed")
