"""A worker whose event loop serves nothing any more is ended; one that computes for some seconds is not."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from tests import models
from tests.e2e.bento import Bento
from tests.raw_http import frame
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.raw_http import Connection

pytestmark = [pytest.mark.timeout(180), pytest.mark.clock]

JSON: Final = [("content-type", "application/json")]
SERVED_NOTHING: Final = re.compile("the event loop has served nothing for [0-9]+ s: this worker is killed")
STANDS_STILL: Final = re.compile("a worker stands still: process [0-9]+ is killed")
LOGGED: Final = {"spin": SERVED_NOTHING, "sleep": SERVED_NOTHING, "lock": STANDS_STILL}
ENDED_S: Final = 60.0
SERVICE: Final = """
import re
import time

from runners.bento import depends, engine, presence, service, watchdog

import bentoml

watchdog.LEAST_SECONDS = presence.LEAST_SECONDS = {least}
Models = engine({repository!r}, name="Models")


@service(name="Reader", workers={workers}, traffic={{"timeout": {timeout}}})
class Reader:
    models = depends(Models)

    def __init__(self) -> None:
        time.sleep({starts_s})

    @bentoml.api
    async def spin(self) -> int:
        while True:
            pass

    @bentoml.api
    async def sleep(self, seconds: float = 1e6) -> float:
        time.sleep(seconds)
        return seconds

    @bentoml.api
    async def lock(self) -> bool:
        return bool(re.match("(a+)+$", "a" * 100 + "b"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models.write_add_sub(tmp_path / "models")
    return tmp_path


def service_in(folder: Path, *, timeout: float, least: int, workers: int = len(LOGGED), starts_s: float = 0) -> Path:
    given = {"timeout": timeout, "least": least, "workers": workers, "starts_s": starts_s}
    (folder / "service.py").write_text(SERVICE.format(repository=str(folder / "models"), **given))
    return folder


def ask(bento: Bento, connection: Connection, endpoint: str, body: bytes = b"{}") -> int:
    """The worker that has the request"""
    connection.send(frame("POST", f"/{endpoint}", JSON, body))
    return bento.worker_of(connection)


def stand_still(bento: Bento, stack: ExitStack) -> dict[int, Connection]:
    """Lets each worker come to serve nothing, in a way of its own"""
    found = {}
    for endpoint in LOGGED:
        connection = stack.enter_context(bento.connect(ENDED_S))
        assert connection.ask("GET", "/livez").status == 200
        found[ask(bento, connection, endpoint)] = connection
    assert found.keys() == set(bento.workers("Reader"))
    return found


def logged(bento: Bento) -> dict[re.Pattern[str], int]:
    text = bento.log.text()
    return {pattern: len(pattern.findall(text)) for pattern in LOGGED.values()}


def test_a_worker_that_serves_nothing_is_replaced_and_one_that_computes_for_seconds_is_not(folder: Path) -> None:
    # so a loop may be kept for eight seconds, in which the others are made to stand still as well
    with Bento(service_in(folder, timeout=4, least=1)).until_ready() as bento, ExitStack() as stack:
        before = set(bento.workers("Reader"))
        with bento.connect(ENDED_S) as connection:
            assert connection.ask("GET", "/livez").status == 200
            ask(bento, connection, "sleep", b'{"seconds": 5}')
            assert connection.receive().status in {200, 504}
        assert set(bento.workers("Reader")) == before
        gone = stand_still(bento, stack)
        assert all(connection.is_closed() for connection in gone.values())
        eventually(lambda: logged(bento) == Counter(LOGGED.values()), "it is said of each")
        eventually(lambda: len(set(bento.workers("Reader")) - gone.keys()) == len(gone), "others were started")
        eventually(lambda: all(map(bento.attends, bento.workers("Reader"))), "they serve")
        assert len(bento.workers("Reader")) == len(gone)


def test_a_worker_may_take_its_time_to_start(folder: Path) -> None:
    with Bento(service_in(folder, timeout=1, least=2, workers=1, starts_s=4)).until_ready() as bento:
        assert not SERVED_NOTHING.search(bento.log.text())


def test_sigterm_ends_workers_that_serve_nothing_however_long_their_requests_may_take(folder: Path) -> None:
    with Bento(service_in(folder, timeout=600, least=3)).until_ready() as bento, ExitStack() as stack:
        kept = stand_still(bento, stack)
        bento.terminate()
        assert all(connection.is_closed() for connection in kept.values())
        # stop() waits for the end, and looks that nothing is left
