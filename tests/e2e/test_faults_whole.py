"""Faults of a whole service: its end, its crash, a model that does not load, a log that nobody takes, a container."""

from __future__ import annotations

import os
import re
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output
from tests.e2e.bento import START_S, STOP_S, Bento, service_of
from tests.e2e.load import Load
from tests.integration.occupied import slow_request
from tests.raw_http import frame
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.timeout(180), pytest.mark.clock]

CLIENTS: Final = 8
HANG_S: Final = 10.0
JSON: Final = [("content-type", "application/json")]
STEPS: Final = 12_000
ONE_AND_TWO: Final = b'{"one": 1, "other": 2}'


def load_on(bento: Bento) -> Load:
    relayed = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")]))
    both = [frame("POST", requests.path("add_sub"), *relayed), frame("POST", "/add", JSON, ONE_AND_TWO)]
    return Load(bento, both * (CLIENTS // 2))


def adds(bento: Bento) -> bool:
    try:
        answer = bento.fetch("POST", "/add", JSON, ONE_AND_TWO)
    except OSError:
        return False
    return answer.status == 200 and answer.json() == 3


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    models.write_add_sub(tmp_path / "models")
    return tmp_path / "models"


@pytest.fixture
def folder(tmp_path: Path, repository: Path) -> Path:
    return service_of(tmp_path, repository)


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGTERM] * 2, [signal.SIGINT]], ids=str)
def test_a_service_that_ends_answers_what_it_has_accepted(
    folder: Path, repository: Path, signals: list[signal.Signals]
) -> None:
    models.write_slow(repository)
    with Bento(folder).until_ready() as bento:
        with load_on(bento) as load:
            load.until_answered()
            called = frame("POST", "/slow", JSON, b'{"steps": %d}' % STEPS)
            accepted = [bento.connect(60) for _ in range(8)]
            for connection in accepted:
                bento.worker_of(connection)
            for place, connection in enumerate(accepted):
                connection.send(slow_request(STEPS) if place % 2 else called)
            eventually(lambda: bento.pending("slow") >= 4, "they wait")
            for number in signals:
                bento.tell(number)
            for connection in accepted:
                assert connection.receive().status == 200
                connection.close()
            eventually(lambda: load.unconnected > 0, "nobody listens any more")
        # A request may meet the end of an idle connection, at each worker once, or of the queue of new ones; but no
        # answer is cut.
        outcomes = load.outcomes
        assert {outcome.status for outcome in outcomes} <= {200, 503, 0}
        assert not [outcome for outcome in outcomes if outcome.status == 0 and outcome.started]
        assert sum(outcome.status == 0 and not outcome.first for outcome in outcomes) <= 2 * CLIENTS
        assert load.slowest < HANG_S
        # that the exit code is 0 and that nothing is left, stop() looks


def test_a_worker_that_stands_still_does_not_keep_the_service_from_its_end(folder: Path) -> None:
    with Bento(folder).until_ready() as bento:
        worker = bento.workers("Reader")[0]
        # the other one may have been ready before it
        eventually(lambda: bento.attends(worker), "it says that it is there")
        os.kill(worker, signal.SIGSTOP)
        with load_on(bento) as load:
            load.until_answered()
        # stop() waits for the end


@pytest.mark.parametrize("way", ["a full disk", "a pipe that nobody reads any more"])
def test_no_request_is_lost_with_a_line_of_the_log(folder: Path, way: str) -> None:
    full = Path("/dev/full") if way == "a full disk" else None
    with Bento(folder, output=full).until_ready() as bento:
        if full is None:
            bento.stop_reading()
        with load_on(bento) as load:
            load.until_answered(200)
            # what it says of its end, and the next engine of its start, is lost as well
            os.kill(bento.engine, signal.SIGKILL)
            eventually(lambda: not bento.is_ready(), "the service is not ready")
            eventually(bento.is_ready, "the service is ready again")
            load.until_answered(200)
        assert {outcome.status for outcome in load.outcomes} == {200, 503}
        assert len(bento.workers("Reader")) == 2


def test_nothing_goes_on_when_the_supervisor_is_killed(tmp_path: Path, repository: Path) -> None:
    with closing_at_once(Bento(service_of(tmp_path, repository, workers=1))) as bento:
        bento.until_ready()
        meeting = Path(bento.engine_http).parent
        bento.process.kill()
        bento.process.wait()
        eventually(lambda: bento.left()[0] == [], "all processes have ended", STOP_S)
        assert list(meeting.iterdir()) == []


def test_services_do_not_disturb_each_other_and_a_crashed_one_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    models.write_add_sub(tmp_path / "models")
    models.write(tmp_path / "models", "broken", b"this is no model")
    models.write_add_sub(tmp_path / "others")
    models.write_add_sub(tmp_path / "others", "others")
    folder = service_of(tmp_path / "other", tmp_path / "others", workers=1)
    with Bento(service_of(tmp_path, tmp_path / "models", workers=1)) as bento:
        runtime = str(bento.runtime)
        crashed = Bento(folder, XDG_RUNTIME_DIR=runtime)
        try:
            crashed.until_ready()
            eventually(lambda: adds(bento), "the model that loads serves", START_S)
            statuses = {path: bento.fetch("GET", path).status for path in EXPECTED}
            assert statuses == EXPECTED
            left = Path(crashed.engine_http)
            with load_on(bento) as load:
                load.until_answered()
                crashed.crash()
                load.until_answered(200)
            assert {outcome.status for outcome in load.outcomes} == {200}
        finally:
            crashed.kill()
        sockets = [left.with_suffix(suffix) for suffix in (".http", ".grpc", ".local", ".presence", ".lifeline")]
        for path in sockets:
            # as if it had happened some time ago
            os.utime(path, (0, 0))
        with Bento(folder, port=crashed.port, XDG_RUNTIME_DIR=runtime).until_ready() as following:
            assert adds(following)
            assert adds(bento)
            assert not any(path.exists() for path in sockets)


EXPECTED: Final = {
    "/readyz": 503,
    "/livez": 200,
    "/v2/health/live": 200,
    "/v2/health/ready": 400,
    "/v2/models/add_sub/ready": 200,
    "/v2/models/broken/ready": 404,
    "/v2/models/others/ready": 404,
}


def test_an_engine_that_cannot_start_is_tried_again_until_it_can(tmp_path: Path, repository: Path) -> None:
    models.write(repository, "broken", b"this is no model")
    with Bento(service_of(tmp_path, repository, workers=1, exit_on_error=True)) as bento:
        bento.log.wait_for(re.compile("failed to load 'broken' version 1: .*: Protobuf parsing failed"), START_S)
        bento.log.wait_for(re.compile("the engine has ended with exit code 1: it is started again in 0.2 s"), START_S)
        eventually(lambda: bento.answers("/livez") == 200, "the workers are there", START_S)
        assert bento.fetch("GET", "/readyz").status == 503
        assert bento.fetch("GET", "/v2/health/ready").status == 503
        assert bento.fetch("POST", "/add", JSON, ONE_AND_TWO).status == 503
        shutil.rmtree(repository / "broken")
        bento.until_ready()
        assert adds(bento)


# --- in containers, where BentoML starts nothing again ---


def test_in_a_container_a_worker_is_replaced_and_the_end_of_the_engine_s_worker_is_that_of_all(folder: Path) -> None:
    with closing_at_once(Bento(folder, BENTOML_CONTAINERIZED="1")) as bento:
        bento.until_ready()
        victim = bento.workers("Reader")[0]
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: len(set(bento.workers("Reader")) - {victim}) == 2, "another worker was started")
        (worker,) = bento.workers("Models")
        os.kill(worker, signal.SIGKILL)
        assert bento.process.wait(STOP_S) != 0
        assert bento.left()[0] == []


def test_in_a_container_an_engine_that_cannot_start_ends_the_service(tmp_path: Path, repository: Path) -> None:
    models.write(repository, "broken", b"this is no model")
    with closing_at_once(
        Bento(service_of(tmp_path, repository, workers=1, exit_on_error=True), BENTOML_CONTAINERIZED="1")
    ) as bento:
        assert bento.process.wait(START_S) != 0
        bento.log.wait_for(re.compile("failed to load 'broken' version 1: .*: Protobuf parsing failed"), STOP_S)
        assert bento.left()[0] == []


@contextmanager
def closing_at_once(bento: Bento) -> Iterator[Bento]:
    """For one that ends by itself"""
    try:
        yield bento
    finally:
        bento.kill()
