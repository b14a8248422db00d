"""A client over HTTP and over gRPC when the server, the client or the process goes away."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from runners import Client, errors
from tests import models
from tests.forks import forked
from tests.gates import HELD, Gate
from tests.integration.occupied import LONG_STEPS, until_pending
from tests.integration.remotes import WAYS, url_of
from tests.serving import DRAINING, ROOT, STOP_S, Server

if TYPE_CHECKING:
    from tests.conftest import StartServer

FIRST = np.arange(16, dtype=np.int32).reshape(1, 16)
LONG = np.array([[LONG_STEPS]])


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(server: Server, way: str) -> Iterator[Client]:
    with Client(url_of(server, way)) as opened:
        yield opened


def test_a_server_that_dies_is_a_lost_connection_and_its_successor_is_found(
    repository: Path, start_server: StartServer, way: str
) -> None:
    models.write_slow(repository)
    models.write_add_sub(repository)
    server = start_server(repository)
    client = Client(url_of(server, way))
    port = client.url.rpartition(":")[2]

    async def what() -> None:
        calls = [client.async_infer("slow", LONG, request_id="gone") for _ in range(3)]
        await asyncio.to_thread(until_pending, server, 2)
        await asyncio.to_thread(server.kill)
        for call in calls:
            with pytest.raises(errors.ConnectionLost, match=rf"the connection to {way}://.+:\d+ was lost") as lost:
                await call
            assert (lost.value.model, lost.value.request_id, lost.value.retryable) == ("slow", "gone", True)

    with client:
        np.testing.assert_array_equal(client.infer("add_sub", FIRST, FIRST)["OUTPUT0"], 2 * FIRST)
        asyncio.run(what())
        with pytest.raises(errors.ConnectionLost, match="nothing listens there; start the server"):
            client.infer("add_sub", FIRST, FIRST)
        with pytest.raises(errors.ConnectionLost):
            client.is_server_live()
        start_server(repository, f"--{way}-port={port}")
        np.testing.assert_array_equal(client.infer("add_sub", FIRST, FIRST)["OUTPUT0"], 2 * FIRST)


def test_a_server_that_drains_answers_what_it_has(repository: Path, start_server: StartServer, way: str) -> None:
    models.write_gated(repository)
    server = start_server(repository)
    client = Client(url_of(server, way))
    steps = [HELD, 0, 1]

    async def what(gate: Gate) -> None:
        calls = [client.async_infer("slow", np.array([[steps[0]]]))]
        await asyncio.to_thread(gate.until_reached)
        calls += [client.async_infer("slow", np.array([[number]])) for number in steps[1:]]
        await asyncio.to_thread(until_pending, server, 2)
        server.terminate()
        await asyncio.to_thread(server.log.wait_for, DRAINING, STOP_S)
        gate.let_through()
        assert [result["OUTPUT0"].item() for result in await asyncio.gather(*calls)] == steps

    with client, Gate(repository) as gate:
        asyncio.run(what(gate))


def test_closing_ends_calls_in_flight(server: Server, way: str) -> None:
    client = Client(url_of(server, way))

    async def what() -> None:
        calls = [client.async_infer("slow", LONG) for _ in range(3)]
        await client.async_is_server_live()
        client.close()
        for call in calls:
            with pytest.raises(errors.ConnectionLost, match="the client is closed"):
                await call

    asyncio.run(what())
    client.close()
    for call in (client.is_server_live, lambda: client.infer("add_sub", FIRST, FIRST)):
        with pytest.raises(errors.ConnectionLost, match="the client is closed"):
            call()


def test_closing_ends_calls_of_other_threads(server: Server, way: str) -> None:
    client = Client(url_of(server, way))
    started = threading.Barrier(5)

    def ask() -> None:
        started.wait()
        with pytest.raises(errors.ConnectionLost, match="the client is closed"):
            client.infer("slow", LONG)

    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask) for _ in range(4)]
        started.wait()
        client.is_server_live()
        client.close()
        for done in asking:
            done.result()


LEAVING = """
import asyncio, sys, threading
import numpy as np
from runners import Client

client = Client(sys.argv[1])
large = np.zeros((1, 100_000), np.float32)
array = np.array([[40_000]])

async def begin():
    calls = [client.async_infer("slow", array) for _ in range(3)]
    calls += [client.async_infer("identity_fp32", large) for _ in range(3)]
    await client.async_is_server_live()
    sys.stdout.write("leaving")

threading.Thread(target=lambda: client.infer("slow", array), daemon=True).start()
LEAVE
"""


@pytest.mark.parametrize("leave", ["asyncio.run(begin())", "asyncio.new_event_loop().run_until_complete(begin())"])
def test_an_interpreter_may_end_with_calls_in_flight(server: Server, leave: str, way: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "dev",
            "-W",
            "ignore::ResourceWarning",
            "-c",
            LEAVING.replace("LEAVE", leave),
            url_of(server, way),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving", "")


def test_a_forked_child_is_told_to_make_its_own(server: Server, client: Client, way: str) -> None:
    client.infer("add_sub", FIRST, FIRST)

    def child() -> str:
        said = []
        for call in (lambda: client.infer("add_sub", FIRST, FIRST), client.is_server_live):
            try:
                call()
            except errors.Unsupported as error:
                said.append(str(error))
        client.close()
        with Client(url_of(server, way)) as own:
            said.append(str(own.infer("add_sub", FIRST, FIRST)["OUTPUT0"].sum()))
        return "|".join(said)

    parent = os.getpid()
    refused, also_refused, answer = forked(child).split("|")
    assert refused == also_refused
    assert refused.startswith(f"this Client belongs to process {parent} and does not work in its forked child ")
    assert answer == str(2 * FIRST.sum())
    np.testing.assert_array_equal(client.infer("add_sub", FIRST, FIRST)["OUTPUT0"], 2 * FIRST)


def test_a_forked_child_that_ends_its_copy_harms_nobody(server: Server, way: str) -> None:
    clients = [Client(url_of(server, way))]
    clients[0].infer("add_sub", FIRST, FIRST)

    def child() -> str:
        clients.clear()
        gc.collect()
        return "well"

    assert forked(child) == "well"
    np.testing.assert_array_equal(clients[0].infer("add_sub", FIRST, FIRST)["OUTPUT0"], 2 * FIRST)
    clients[0].close()
