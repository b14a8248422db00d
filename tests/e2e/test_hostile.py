"""Clients that break the rules on a Bento's port: nobody else is harmed, and nothing is left of them."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output
from tests.e2e.bento import ANSWER_S, Bento, service_of
from tests.e2e.hostile import SMUGGLED, Hostile
from tests.raw_http import frame
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.clock

HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")], id="mine"))
PATH, UNKNOWN = requests.path("add_sub"), requests.path("nothing")
CLIENTS = 12
SECONDS = 4.0
REST_S = 0.5


@pytest.fixture(scope="module")
def bento(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bento]:
    folder = tmp_path_factory.mktemp("hostile")
    models.write_add_sub(folder / "models")
    with Bento(service_of(folder, folder / "models")).until_ready() as bento:
        # What takes long opens what a worker watches the engine through, and keeps.
        workers = set(bento.workers("Reader"))
        for worker in workers:
            with stopped(workers - {worker}):
                assert refused_unheard(bento) == worker
        yield bento


@contextmanager
def stopped(workers: set[int]) -> Iterator[None]:
    """So that another one answers: on a quiet machine the same one may take all requests that come one by one"""
    try:
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        yield
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)


def refused_unheard(bento: Bento) -> int:
    """The worker that has answered before it had the body"""
    with bento.connect() as connection:
        connection.send(frame("POST", UNKNOWN, [("content-length", "999999999999")]))
        assert connection.receive().status in {400, 404}
        # It still hears whether the body comes.
        return bento.worker_of(connection)


@pytest.fixture(autouse=True)
def nothing_is_left(bento: Bento) -> Iterator[None]:
    """The workers that were there are there, with what they had, and at rest"""
    workers = bento.workers("Reader")
    # the first of a worker's requests opens what stays
    for _ in range(20):
        bento.fetch("GET", "/v2")
    eventually(lambda: idle_connections(bento) == 0, "no connection to the engine is kept")
    before = {pid: descriptors(pid) for pid in workers}
    yield
    assert bento.workers("Reader") == workers

    def left() -> dict[int, Counter[str]]:
        more = {pid: kinds(descriptors(pid)) - kinds(before[pid]) for pid in workers}
        return {pid: kinds for pid, kinds in more.items() if kinds}

    with suppress(AssertionError):
        eventually(lambda: not left(), "no descriptor is left")
    # tells which ones
    assert not left()
    eventually(lambda: share_of_time(workers) < 0.2, "the workers are at rest")
    assert bento.fetch("POST", PATH, HEADERS, BODY).json()["id"] == "mine"


def descriptors(pid: int) -> list[str]:
    """What each of them leads to"""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        # it may be closed meanwhile
        with suppress(FileNotFoundError):
            found.append(str(path.readlink()))
    return found


def kinds(descriptors: list[str]) -> Counter[str]:
    """Sockets and their like without their numbers"""
    # a worker opens the files of its metrics when it first counts something of their kind, and keeps them
    return Counter(one.partition("[")[0] for one in descriptors if ".db" not in one)


def idle_connections(bento: Bento) -> int:
    """To the engine's HTTP"""
    lines = Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()
    return sum(line.endswith(bento.engine_http) for line in lines) - 1


def share_of_time(pids: list[int]) -> float:
    """Of one processor, that these processes use now"""
    before, begun = seconds_worked(pids), time.monotonic()
    Event().wait(REST_S)
    return (seconds_worked(pids) - before) / (time.monotonic() - begun)


def seconds_worked(pids: list[int]) -> float:
    fields = [Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / 100


def ask_until(bento: Bento, stop: Event) -> int:
    """An honest client, which must get its own answers"""
    count = 0
    while not stop.is_set():
        with bento.connect() as connection:
            for _ in range(5):
                answer = connection.ask("POST", PATH, HEADERS, BODY)
                assert (answer.status, answer.json()["id"]) == (200, "mine")
                assert connection.ask("GET", "/v2/health/live").status == 200
                count += 1
    return count


def test_uploads_that_break_off_beside_others_stop_no_worker(bento: Bento) -> None:
    stop = Event()
    with ThreadPoolExecutor(4) as honest:
        asking = [honest.submit(ask_until, bento, stop) for _ in range(4)]
        try:
            for length in range(150):
                with bento.connect() as leaving:
                    leaving.send(frame("POST", UNKNOWN, [("content-length", "1000000")], bytes(length)))
            assert bento.fetch("GET", "/livez").status == 200
        finally:
            stop.set()
        assert all(one.result() for one in asking)


def test_a_body_behind_an_upgrade_is_nobodys_answer(bento: Bento) -> None:
    upgrade = [("connection", "Upgrade"), ("upgrade", "h2c"), *HEADERS]
    stop = Event()
    with ThreadPoolExecutor(4) as honest:
        asking = [honest.submit(ask_until, bento, stop) for _ in range(4)]
        try:
            for _ in range(150):
                with bento.connect() as connection:
                    connection.send(frame("POST", UNKNOWN, upgrade, SMUGGLED))
                    assert connection.receive().status == 404
        finally:
            stop.set()
        assert all(one.result() for one in asking)


def test_an_answer_that_needs_no_body_does_not_wait_for_it(bento: Bento) -> None:
    refused_unheard(bento)


@pytest.mark.scheduled
def test_every_answer_belongs_to_who_has_asked(bento: Bento, request: pytest.FixtureRequest) -> None:
    """--hostile-seconds is for how long"""
    seconds = request.config.getoption("--hostile-seconds", None) or SECONDS
    seed = random.randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    ends_at = time.monotonic() + seconds
    clients = [Hostile(bento.address, seed + place, ends_at, ANSWER_S) for place in range(CLIENTS)]
    stop = Event()
    with ThreadPoolExecutor(CLIENTS + 1) as threads:
        honest = threads.submit(ask_until, bento, stop)
        running = [threads.submit(client.run) for client in clients]
        try:
            for one in running:
                one.result()
        finally:
            stop.set()
        assert honest.result()
    assert all(client.asked for client in clients)
