"""A client that goes away while an endpoint waits for the engine: nothing is done for it any more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from runners.bento.web.timeout import CLIENT_GONE
from tests import models
from tests.e2e.bento import Bento
from tests.gates import HELD, Gate
from tests.raw_http import frame
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.raw_http import Connection

_SERVICE: Final = """
from collections.abc import AsyncIterator

import bentoml
import numpy as np
from runners.bento import depends, engine, service

Models = engine({repository!r}, name="Models")


@service(name="Waiter", workers=1)
class Waiter:
    models = depends(Models)

    @bentoml.api
    async def awaited(self, steps: int) -> int:
        return int((await self.models.slow.async_run(np.array([[steps]])))["OUTPUT0"][0, 0])

    @bentoml.api
    async def streamed(self, steps: int) -> AsyncIterator[str]:
        for part in range(2):
            await self.models.slow.async_run(np.array([[steps]]))
            yield str(part)

    @bentoml.api
    def in_thread(self, steps: int) -> int:
        return int(self.models.slow.run(np.array([[steps]]))["OUTPUT0"][0, 0])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("leaving")
    models.write_gated(folder / "models")
    (folder / "service.py").write_text(_SERVICE.format(repository=str(folder / "models")))
    return folder


@pytest.fixture(scope="module")
def bento(folder: Path) -> Iterator[Bento]:
    with Bento(folder).until_ready() as bento:
        yield bento


def request(endpoint: str, steps: int, identity: str = "") -> bytes:
    headers = [("content-type", "application/json"), ("x-request-id", identity)]
    return frame("POST", f"/{endpoint}", headers, json.dumps({"steps": steps}).encode())


@pytest.fixture
def executing(bento: Bento, folder: Path) -> Iterator[tuple[Connection, Gate]]:
    """A request that the only instance of the model works on until the gate lets it through, with nothing behind it"""
    with Gate(folder / "models") as gate, bento.connect() as connection:
        connection.send(request("awaited", HELD))
        gate.until_reached()
        yield connection, gate
        gate.close()
        assert connection.receive().status == 200


@pytest.mark.parametrize("endpoint", ["awaited", "streamed"])
def test_its_place_in_the_queue_is_free_at_once(
    bento: Bento, executing: tuple[Connection, Gate], endpoint: str
) -> None:
    identity = f"leaves-{endpoint}"
    with bento.connect() as leaving:
        leaving.send(request(endpoint, 0, identity))
        eventually(lambda: bento.pending("slow") == 1, "it waits")
    eventually(lambda: bento.pending("slow") == 0, "its place is free")
    assert not executing[0].has_answer()
    assert bento.logged(identity)["status"] == CLIENT_GONE


def test_what_runs_in_a_thread_goes_on(bento: Bento, executing: tuple[Connection, Gate]) -> None:
    with bento.connect() as leaving:
        leaving.send(request("in_thread", 0, "leaves-thread"))
        eventually(lambda: bento.pending("slow") == 1, "it waits")
    executing[1].let_through()
    assert bento.logged("leaves-thread")["status"] == 200


@pytest.mark.parametrize("endpoint", ["awaited", "streamed", "in_thread"])
def test_who_stays_is_answered(bento: Bento, endpoint: str) -> None:
    with bento.connect() as connection:
        connection.send(request(endpoint, 100))
        answer = connection.receive()
    assert answer.status == 200
    assert answer.body
