"""Runs that would never end, because the data of a request says how often a loop of the model goes round."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runners import Engine, EngineOptions
from runners.errors import ShuttingDown
from tests import hostile_models, models
from tests.bystander import undisturbed
from tests.contract import requests
from tests.contract.requests import Infer, Tensor
from tests.hostile_models import ENDLESS
from tests.processes import thread_states
from tests.raw_http import frame
from tests.serving import executes
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conftest import StartServer
    from tests.raw_http import Headers, Response
    from tests.serving import Server

SHORT = 1
ENOUGH_TO_RUN_INLINE = 400
ONE_IO_THREAD = "--http-thread-count=1"


def write_counting(repository: Path, extra: str = "") -> None:
    models.write_add_sub(repository)
    text = models.config(
        "m",
        [("INPUT0", "INT64", [1])],
        [("OUTPUT0", "INT64", [1])],
        max_batch_size=4,
        extra=f"{models.ONE_INSTANCE} {models.ONE_THREAD} {extra}",
    )
    models.write(repository, "m", hostile_models.counting(), text)


def counting(steps: int, headers: Headers = ()) -> bytes:
    more, body = requests.body(Infer("m", [Tensor("INPUT0", "INT64", (1, 1), values=[steps])]))
    return frame("POST", requests.path("m"), [*more, *headers], body)


def answer(server: Server, steps: int, headers: Headers = ()) -> Response:
    with server.connect() as connection:
        connection.send(counting(steps, headers))
        return connection.receive()


def until_executing(server: Server) -> None:
    eventually(lambda: executes(server.pid, "m"), "the model computes")


def pending(server: Server) -> float:
    return server.metrics()['nv_inference_pending_request_count{model="m",version="1"}']


@pytest.mark.clock
def test_a_run_ends_when_its_client_leaves(repository: Path, start_server: StartServer) -> None:
    write_counting(repository)
    server = start_server(repository)
    with undisturbed(server):
        with server.connect() as leaving:
            leaving.send(counting(ENDLESS))
            until_executing(server)
        assert answer(server, SHORT).json()["outputs"][0]["data"] == [SHORT]
    assert server.stop() == 0


def test_a_run_ends_at_the_deadline_of_its_request(repository: Path, start_server: StartServer) -> None:
    write_counting(repository)
    server = start_server(repository)
    with undisturbed(server):
        late = answer(server, ENDLESS, [("kushi-timeout-us", "200000")])
        assert (late.status, late.error) == (503, "Request timeout expired")
        assert answer(server, SHORT).status == 200
    assert server.stop() == 0


@pytest.mark.clock
def test_a_run_goes_on_while_anybody_waits_for_it(repository: Path, start_server: StartServer) -> None:
    write_counting(
        repository, "dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 10000000 }"
    )
    server = start_server(repository)
    with undisturbed(server), server.connect() as waiting:
        waiting.send(counting(500_000))
        with server.connect() as leaving:
            leaving.send(counting(500_000))
            until_executing(server)
        assert waiting.receive().status == 200


@pytest.mark.clock
def test_a_run_begins_again_without_a_client_that_has_left(repository: Path, start_server: StartServer) -> None:
    """Its neighbour in the batch would wait for what nobody wants any more."""
    write_counting(
        repository, "dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 10000000 }"
    )
    server = start_server(repository)
    with undisturbed(server), server.connect() as waiting:
        waiting.send(counting(SHORT))
        with server.connect() as leaving:
            leaving.send(counting(ENDLESS))
            until_executing(server)
        response = waiting.receive()
        assert (response.status, response.json()["outputs"][0]["data"]) == (200, [SHORT])
    assert server.stop() == 0


@pytest.mark.clock
def test_a_run_on_an_io_thread_leaves_it_to_the_others(repository: Path, start_server: StartServer) -> None:
    """A model earns io threads by short runs, and a long one blocks all connections of its thread."""
    write_counting(repository)
    server = start_server(repository, ONE_IO_THREAD)
    with server.connect() as connection:
        for _ in range(ENOUGH_TO_RUN_INLINE):
            connection.send(counting(SHORT))
            assert connection.receive().status == 200
    with server.connect() as leaving:
        leaving.send(counting(ENDLESS))
        until_executing(server)
        with undisturbed(server):
            pass
    assert answer(server, SHORT).status == 200
    assert server.stop() == 0


def test_the_end_of_the_exit_timeout_answers_whoever_waits(repository: Path, start_server: StartServer) -> None:
    write_counting(repository)
    server = start_server(repository, "--exit-timeout-secs=1")
    with server.connect() as waiting:
        waiting.send(counting(ENDLESS))
        eventually(lambda: server.metrics()["kushi_running_requests"] == 1, "the request executes")
        server.terminate()
        ended = waiting.receive()
    assert (ended.status, "the run was ended, because model 'm' is being stopped" in ended.error) == (503, True), ended
    assert server.wait() == 1


def threads() -> set[tuple[str, str]]:
    """The threads of this process, by name and by number, and what each does."""
    states = {*thread_states(os.getpid())}
    for path in Path("/proc/self/task").glob("*/stat"):
        # a thread may end meanwhile
        with suppress(FileNotFoundError, ProcessLookupError):
            states.add((path.parent.name, path.read_text(errors="replace").rpartition(")")[2].split()[0]))
    return states


def infer(engine: Engine, steps: int, into: list[object]) -> None:
    try:
        into.append(engine.infer("m", {"INPUT0": [[steps]]}))
    except BaseException as error:  # noqa: BLE001 - the test looks at it
        into.append(error)


@pytest.mark.clock
@pytest.mark.parametrize("before", [[], [SHORT] * ENOUGH_TO_RUN_INLINE], ids=["on_a_thread", "inline"])
def test_an_engine_that_closes_ends_its_runs(repository: Path, before: Sequence[int]) -> None:
    write_counting(repository)
    ended: list[object] = []
    with Engine(repository, options=EngineOptions()) as engine:
        for steps in before:
            engine.infer("m", {"INPUT0": [[steps]]})
        asking = threading.Thread(target=infer, args=(engine, ENDLESS, ended))
        asking.start()
        computing = {("m_0", "R"), (str(asking.native_id), "R")}
        eventually(lambda: not computing.isdisjoint(threads()), "the model computes")
    asking.join()
    (error,) = ended
    assert isinstance(error, ShuttingDown)
