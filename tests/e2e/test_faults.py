"""What clients see while parts of a service die or stand still: an answer to each request, and soon all is well."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import httpx
import pytest
from httpx_ws import WebSocketDisconnect, WebSocketSession, connect_ws

from tests import models
from tests.contract import requests
from tests.contract.requests import Infer, Output, Tensor
from tests.e2e.bento import ANSWER_S, Bento
from tests.e2e.load import Load
from tests.e2e.pictures import encoded, picture
from tests.integration.occupied import LONG_STEPS, slow_request
from tests.processes import thread_states
from tests.raw_http import frame
from tests.small_service import FOLDER, MODELS
from tests.small_service.handwriting import handwritten
from tests.small_service.sounds import CHUNK
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.timeout(180), pytest.mark.clock]

AT_ONCE_S = 8.0
"""On a machine that is busy; whoever waited for the next engine, or for a time to be over, would wait much longer"""
STARTING_S = 8.0
"""What a request may take longer while processes start beside it, which are busy for seconds"""
SILENCE_S = 30.0
"""Two seconds, counted in turns of a thread, and the start of another worker"""
CLIENTS = 8
HEALTH = "/livez", "/readyz", "/v2/health/live", "/v2/health/ready"


@pytest.fixture(scope="module")
def bento(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bento]:
    """The small service, with two workers on any machine, which serves a slow model besides its own"""
    folder = tmp_path_factory.mktemp("service")
    code, given = (FOLDER / "service.py").read_text(), '@service(name="Kushi", '
    assert given in code
    (folder / "service.py").write_text(code.replace(given, f"{given}workers=2, "))
    shutil.copytree(MODELS, folder / "model_repository")
    models.write_slow(folder / "model_repository")
    with Bento(folder).until_ready() as bento:
        yield bento
        # It ends while it has no engine: that leaves nothing either.
        for engine in bento.engines():
            os.kill(engine, signal.SIGKILL)


@pytest.fixture
def load(bento: Bento) -> Iterator[Load]:
    # the stand of the fault before may still be repaired
    eventually(lambda: bento.is_ready() and len(bento.workers("Kushi")) == 2, "all is well")
    form = httpx.Request("POST", bento.url, files={"image": ("picture", encoded(picture(3)), "image/png")})
    image = handwritten(3).reshape(1, 1, 8, 8)
    tensor = Tensor("image", "FP32", image.shape, raw=image.tobytes())
    relayed = requests.body(Infer("digits", [tensor], [Output("logits", binary=True)]))
    both = [
        frame("POST", "/digit", [("content-type", form.headers["content-type"])], form.read()),
        frame("POST", requests.path("digits"), *relayed),
    ]
    with Load(bento, both * (CLIENTS // 2)) as load:
        load.until_answered()
        yield load


def check(load: Load, *, longest: float, lost: int = 0) -> None:
    """Every request was answered in time, but for some"""
    outcomes = load.outcomes
    assert {outcome.status for outcome in outcomes} <= {200, 503, 0}
    unanswered = [outcome for outcome in outcomes if outcome.status == 0]
    assert len(unanswered) <= lost, unanswered
    assert load.unconnected == 0
    assert load.slowest < longest


def hears(socket: WebSocketSession) -> bool:
    socket.send_bytes(bytes(2 * CHUNK))
    return "probability" in socket.receive_json(timeout=ANSWER_S)


def runs_no_more(process: int) -> bool:
    """Whether all of its threads have ended or are stopped"""
    return {state for _, state in thread_states(process)} <= {"T", "Z", "X"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
def test_an_engine_that_dies_or_stands_still_is_replaced(bento: Bento, load: Load, number: signal.Signals) -> None:
    before = bento.engine
    with ExitStack() as stack:
        health = {path: stack.enter_context(Load(bento, [frame("GET", path)])) for path in HEALTH}
        socket: WebSocketSession = stack.enter_context(
            connect_ws(f"{bento.url}/events", stack.enter_context(bento.client()))
        )
        assert hears(socket)
        waiting = [stack.enter_context(bento.connect()) for _ in range(4)]
        for connection in waiting:
            connection.send(slow_request(10 * LONG_STEPS))
        eventually(lambda: bento.pending("slow") > 0, "some execute and some wait")
        for each in health.values():
            each.until_answered(2)
        within = AT_ONCE_S + max(load.slowest, *(each.slowest for each in health.values()))

        fault = time.monotonic()
        os.kill(before, number)
        # SIGSEGV reaches one thread, and the others answer on until that one has run.
        eventually(lambda: runs_no_more(before), "no thread of it runs")
        socket.send_bytes(bytes(2 * CHUNK))
        assert {connection.receive().status for connection in waiting} == {503}
        assert time.monotonic() - fault < within
        with pytest.raises(WebSocketDisconnect) as closed:
            socket.receive_json(timeout=ANSWER_S)
        assert (closed.value.code, closed.value.reason) == (
            1011,
            "the engine is not there yet, or not any more: /readyz answers 200 when it is",
        )
        assert time.monotonic() - fault < within
        eventually(lambda: set(bento.engines()) - {before} != set(), "another engine was started")
        assert time.monotonic() - fault < within + AT_ONCE_S

        eventually(bento.is_ready, "the service is ready again")
        load.until_answered()
        for each in health.values():
            each.until_answered()
        again: WebSocketSession
        with bento.client() as client, connect_ws(f"{bento.url}/events", client) as again:
            assert hears(again)
    assert bento.engine != before
    assert len(bento.workers("Kushi")) == 2
    check(load, longest=within + STARTING_S)
    assert load.waited_after(fault) < within
    assert {outcome.status for outcome in health.pop("/livez").outcomes} == {200}
    for each in health.values():
        check(each, longest=within + STARTING_S)
        assert (
            min(outcome.began + outcome.seconds for outcome in each.outcomes if outcome.status == 503) < fault + within
        )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_nobody_misses_the_worker_that_keeps_the_engine_and_the_next_one_keeps_it(
    bento: Bento, load: Load, number: signal.Signals
) -> None:
    before = bento.engine
    (worker,) = bento.workers("Models")
    os.kill(worker, number)
    eventually(lambda: worker not in bento.workers("Models"), "the worker has ended", SILENCE_S)
    eventually(lambda: any(map(bento.attends, bento.workers("Models"))), "another one keeps the engine", SILENCE_S)
    load.until_answered()
    assert bento.engine == before
    assert {outcome.status for outcome in load.outcomes} == {200}
    os.kill(before, signal.SIGKILL)
    eventually(lambda: set(bento.engines()) - {before} != set(), "which starts another engine")
    eventually(bento.is_ready, "the service is ready again")
    load.until_answered()
    check(load, longest=SILENCE_S)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_other_workers_go_on_when_one_dies_or_stands_still(
    bento: Bento, load: Load, number: signal.Signals
) -> None:
    with bento.connect(SILENCE_S) as connection:
        connection.ask("GET", "/livez")
        victim = bento.worker_of(connection)
        os.kill(victim, number)
        load.until_answered()
        assert bento.is_ready()
        assert connection.is_closed()
    load.until_answered()
    eventually(lambda: len(set(bento.workers("Kushi")) - {victim}) == 2, "another worker was started")
    load.until_answered()
    assert bento.is_ready()
    check(load, longest=SILENCE_S, lost=CLIENTS)


def test_an_engine_that_outlives_its_worker_is_ended(bento: Bento, load: Load) -> None:
    before = bento.engine
    (worker,) = bento.workers("Models")
    within = AT_ONCE_S + load.slowest
    os.kill(before, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: before not in bento.engines(), "the engine has ended")
    eventually(bento.is_ready, "the service is ready again")
    load.until_answered()
    assert len(bento.engines()) == 1
    check(load, longest=within + STARTING_S)
