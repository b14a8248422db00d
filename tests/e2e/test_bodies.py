"""What large bodies at the same time cost a worker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from tests.e2e.bento import START_S, Bento
from tests.raw_http import frame
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.raw_http import Response

BODY_BYTES = 60_000_000
CLIENTS = 12
PIECES = 100
_READS = """
from pathlib import Path

import bentoml
from runners.bento import depends, service


@service(workers=1)
class Reads:
    models = depends(url="http://127.0.0.1:1")

    @bentoml.api
    async def size(self, image: Path, /) -> int:
        return image.stat().st_size
"""
HEADERS = [("content-type", "image/png")]


@pytest.fixture(scope="module")
def bento(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bento]:
    folder: Path = tmp_path_factory.mktemp("bodies")
    (folder / "service.py").write_text(_READS)
    with Bento(folder) as bento:
        eventually(lambda: bento.answers("/livez") == 200, "it serves", START_S)
        yield bento


@pytest.mark.alone
def test_large_bodies_at_the_same_time_have_a_bound(bento: Bento) -> None:
    (before,) = (bento.memory_kib([worker]) for worker in bento.workers("Reads"))
    head = frame("POST", "/size", [*HEADERS, ("content-length", str(BODY_BYTES))])
    together = Barrier(CLIENTS)

    def ask() -> Response:
        with bento.connect() as connection:
            connection.send(head)
            together.wait()
            for _ in range(PIECES):
                # An answer before the end is the last of its connection.
                if connection.has_answer():
                    break
                connection.send(bytes(BODY_BYTES // PIECES))
            return connection.receive()

    with ThreadPoolExecutor(CLIENTS) as threads:
        answers = [one.result() for one in [threads.submit(ask) for _ in range(CLIENTS)]]
    refused = [answer for answer in answers if answer.status != 200]
    assert len(refused) < CLIENTS
    for answer in refused:
        assert (answer.status, answer.header("retry-after")) == (503, "1")
        assert answer.error.startswith("other requests have the 83886080 bytes that a worker keeps of bodies")
    # What has come, and a copy of the one that is whole
    assert bento.peak_kib() - before < 250 << 10
    assert bento.fetch("POST", "/size", HEADERS, bytes(BODY_BYTES)).json() == BODY_BYTES
