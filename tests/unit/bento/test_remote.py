"""A Client of an engine elsewhere: calls end when it stands still, and only then."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners import ConnectionLost, DeadlineExceeded
from runners.bento.relay.watch import Watch
from runners.bento.remote import RemoteClient
from tests import models
from tests.gates import HELD, Gate
from tests.serving import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOOKS = 5
"""More than an engine that stands still would get"""


class Looks:
    """At engines: how many there were, and an event for each that waits for more"""

    def __init__(self) -> None:
        self.found: list[bool] = []
        self.more = asyncio.Event()

    async def until(self, count: int) -> None:
        while len(self.found) < count:
            self.more.clear()
            await self.more.wait()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    looks = Looks()
    is_live = Watch._is_live

    async def seen(watch: Watch) -> bool:
        looks.found.append(await is_live(watch))
        looks.more.set()
        return looks.found[-1]

    monkeypatch.setattr(Watch, "_is_live", seen)
    return looks


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections, and says nothing"""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    models.write_gated(repository)
    server = Server.start(repository)
    yield server
    server.kill()


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Server]:
    """A server that tells only those with a token whether it lives"""
    models.write_gated(tmp_path)
    server = Server.start(tmp_path, "--http-restricted-api=health:x-key=secret", ready=False)
    yield server
    server.kill()


def test_all_calls_to_an_engine_that_stands_still_end(silent: str) -> None:
    with RemoteClient(silent) as client:

        async def main() -> None:
            calls = [client.async_infer("any", np.zeros(1)) for _ in range(300)]
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert {str(error) for error in found} == {f"the engine at {silent} stands still"}
            with pytest.raises(ConnectionLost, match="stands still"):
                await client.any.async_run(np.zeros(1))

        for _ in range(2):
            # in each event loop
            asyncio.run(asyncio.wait_for(main(), 30))


def test_a_deadline_comes_first(silent: str) -> None:
    with RemoteClient(silent) as client:

        async def main() -> Any:  # noqa: ANN401 - nothing comes back
            return await client.async_infer("any", np.zeros(1), deadline=0.02)

        with pytest.raises(DeadlineExceeded):
            asyncio.run(main())


async def answers_of_calls_that_take_long(client: RemoteClient, server: Server, looks: Looks, count: int) -> list[Any]:
    """Of so many at once: each is held for longer than an engine may be silent"""
    assert server.repository is not None
    with Gate(server.repository) as gate:
        calls = [asyncio.ensure_future(client.slow.async_run(np.array([[HELD]]))) for _ in range(count)]
        # or until one of them has ended
        watched: list[asyncio.Future[Any]] = [*calls, asyncio.ensure_future(looks.until(LOOKS))]
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        assert not any(call.done() for call in calls)
        for _ in calls:
            await asyncio.to_thread(gate.until_reached)
            gate.let_through()
        return await asyncio.gather(*calls)


def test_calls_that_take_long_are_answered_while_the_engine_lives(server: Server, looks: Looks) -> None:
    with RemoteClient(f"http://127.0.0.1:{server.http[1]}") as client:
        assert len(asyncio.run(answers_of_calls_that_take_long(client, server, looks, 4))) == 4
    assert all(looks.found)


def test_an_engine_that_asks_for_a_token_lives(closed: Server, looks: Looks) -> None:
    with RemoteClient(f"http://127.0.0.1:{closed.http[1]}") as client:
        assert asyncio.run(answers_of_calls_that_take_long(client, closed, looks, 1))
    assert all(looks.found)


@pytest.mark.clock
def test_a_call_that_nobody_waits_for_any_more_is_watched_no_more(server: Server) -> None:
    assert server.repository is not None
    with Gate(server.repository), RemoteClient(f"http://127.0.0.1:{server.http[1]}") as client:

        async def main() -> None:
            async with asyncio.timeout(30):
                call = client.slow.async_run(np.array([[HELD]]))
                while len(asyncio.all_tasks()) == 1:
                    await asyncio.sleep(0.01)
                call.cancel()
                while len(asyncio.all_tasks()) > 1:
                    await asyncio.sleep(0.01)

        asyncio.run(main())


def test_event_loops_that_have_ended_are_not_kept(silent: str) -> None:
    with RemoteClient(silent) as client:
        ended = []

        async def main() -> None:
            ended.append(weakref.ref(asyncio.get_running_loop()))
            with pytest.raises(ConnectionLost, match="stands still"):
                await client.async_infer("any", np.zeros(1))

        for _ in range(4):
            asyncio.run(asyncio.wait_for(main(), 30))
        gc.collect()
        # The last one may be: no later one has come.
        assert [loop() for loop in ended[:-1]] == [None, None, None]
