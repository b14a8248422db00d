"""What becomes of a container that is stopped, or whose processes die: clients are answered, and it says how it is."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.containers.docker import docker
from tests.containers.test_serving import SERVED
from tests.contract import requests
from tests.contract.requests import Infer, Output, Tensor
from tests.e2e.load import Load
from tests.e2e.pictures import encoded, written
from tests.raw_http import frame
from tests.serving import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.containers.docker import Container

pytestmark = pytest.mark.timeout(1200)

CLIENTS = 8
STOP_S = 10
READY_AGAIN_S = 30.0
"""For slow machines"""
END_S = 90.0


def both_ways() -> list[bytes]:
    """A word to the endpoint, and a line to the engine"""
    form = httpx.Request("POST", "http://container", files={"document": ("word.png", encoded(written("birds")))})
    tensor = Tensor("x", "FP32", (1, 3, 48, 192), raw=bytes(4 * 3 * 48 * 192))
    relayed = requests.body(Infer("orientation", [tensor], [Output("save_infer_model/scale_0.tmp_1", binary=True)]))
    return [
        frame("POST", "/read", [("content-type", form.headers["content-type"])], form.read()),
        frame("POST", requests.path("orientation"), *relayed),
    ]


@pytest.fixture(scope="module")
def container(start: Callable[..., Container]) -> Iterator[Container]:
    with start("--health-interval", "200ms", "--health-retries", "1") as container:
        yield container.until_ready()


@pytest.fixture
def load(container: Container) -> Iterator[Load]:
    with Load(container, both_ways() * (CLIENTS // 2)) as load:
        load.until_answered()
        yield load


def check(load: Load, *, lost: int = 0) -> None:
    """Every request was answered, but for some"""
    outcomes = load.outcomes
    assert {outcome.status for outcome in outcomes} <= {200, 503, 0}
    assert sum(outcome.status == 0 for outcome in outcomes) <= lost
    assert load.unconnected == 0


def test_its_health_follows_its_readiness(container: Container) -> None:
    before = container.until("healthy").engine
    container.signal("STOP", before)
    container.until("unhealthy").until("healthy")
    assert container.engine != before


def test_an_engine_that_is_killed_is_replaced(container: Container, load: Load) -> None:
    before = container.engine
    container.signal("KILL", before)
    eventually(lambda: set(container.engines()) - {before} != set(), "another engine was started", READY_AGAIN_S)
    eventually(container.is_ready, "the container is ready again", READY_AGAIN_S)
    load.until_answered()
    check(load)


@pytest.mark.parametrize("victims", ["one", "all"])
def test_workers_that_are_killed_are_replaced(container: Container, load: Load, victims: str) -> None:
    before = container.workers("Kushi")
    killed = before[:1] if victims == "one" else before
    for pid in killed:
        container.signal("KILL", pid)
    eventually(
        lambda: len(found := container.workers("Kushi")) == len(before) and not set(found) & set(killed),
        "others were started",
        READY_AGAIN_S,
    )
    eventually(container.is_ready, "the container is ready", READY_AGAIN_S)
    load.until_answered()
    # theirs, and of those that knocked
    check(load, lost=3 * CLIENTS)


def test_the_end_of_the_worker_that_keeps_the_engine_is_that_of_the_container(start: Callable[..., Container]) -> None:
    with start() as container:
        (keeper,) = container.until_ready().workers("Models")
        container.signal("KILL", keeper)
        assert container.wait(END_S) != 0


def test_a_container_that_is_stopped_answers_what_it_has_accepted(
    start: Callable[..., Container], tmp_path: Path
) -> None:
    # requests wait for company that does not come: so they are known to be under way
    text = (ROOT / "model_repository/orientation/config.pbtxt").read_text()
    assert "dynamic_batching { }" in text
    waiting = "dynamic_batching { preferred_batch_size: [ 64 ] max_queue_delay_microseconds: 2000000 }"
    (tmp_path / "config.pbtxt").write_text(text.replace("dynamic_batching { }", waiting))
    with start("--volume", f"{tmp_path / 'config.pbtxt'}:{SERVED}/orientation/config.pbtxt:ro") as container:
        container.until_ready()
        with Load(container, both_ways() * (CLIENTS // 2)) as load:
            load.until_answered(2 * CLIENTS)
            accepted = [container.connect() for _ in range(CLIENTS)]
            for place, connection in enumerate(accepted):
                connection.send(both_ways()[place % 2])
            eventually(
                lambda: container.pending("orientation") == 2 * CLIENTS, "all of them wait, beside those of the load"
            )
            began = time.monotonic()
            with subprocess.Popen(["docker", "stop", "--time", str(STOP_S), container.name], stdout=subprocess.DEVNULL):
                answers = [connection.receive() for connection in accepted]
            took = time.monotonic() - began
            eventually(lambda: load.unconnected > 0, "nobody listens any more")
        for connection in accepted:
            connection.close()
        assert [answer.status for answer in answers] == [200] * CLIENTS
        assert container.state["ExitCode"] == 0
        assert took < STOP_S
        # A request may meet the end of an idle connection, or of the queue of new ones; but no answer is cut.
        assert {outcome.status for outcome in load.outcomes} <= {200, 503, 0}
        assert not [outcome for outcome in load.outcomes if outcome.status == 0 and outcome.started]
        assert docker("inspect", "--format", "{{.State.Status}}", container.name) == "exited"
