"""Models that are loaded, loaded again and unloaded while others ask them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Tensor
from tests.held import hold_file
from tests.integration.occupied import occupy, send_behind_another, slow_request
from tests.processes import thread_names
from tests.raw_http import frame
from tests.serving import run_to_end
from tests.waiting import eventually, settles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.held import HeldFile
    from tests.raw_http import Connection, Response
    from tests.serving import Server

EXPLICIT = "--model-control-mode=explicit"
PORTS = ("--http-address=127.0.0.1", "--http-port=0", "--metrics-address=127.0.0.1", "--metrics-port=0")
HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS))
ONE_HEADERS, ONE_BODY = requests.body(Infer("plus", [Tensor("INPUT0", "INT32", (1, 1), values=[0])]))

BOTH = """
platform: "ensemble"
max_batch_size: 1
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "plus" model_version: -1
  input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" }
} ] }
"""


def load(server: Server, name: str) -> Response:
    return server.post(f"/v2/repository/models/{name}/load", b"")


def unload(server: Server, name: str) -> Response:
    return server.post(f"/v2/repository/models/{name}/unload", b"")


def states(server: Server) -> dict[str, str]:
    rows = server.post("/v2/repository/index", b"").json()
    return {f"{row['name']}:{row.get('version', '')}": row.get("state", "") for row in rows}


def write_plus(repository: Path, constant: int, version: int = 1) -> None:
    file = repository / "plus" / str(version) / "model.onnx"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(models.plus_constant(constant).SerializeToString())


def plus(server: Server, version: str = "") -> int:
    response = server.post(requests.path("plus", version), ONE_BODY, ONE_HEADERS)
    assert response.status == 200, response
    return int(response.json()["outputs"][0]["data"][0])


def instance_threads(server: Server, model: str) -> int:
    return sum(name.startswith(f"{model}_") for name in thread_names(server.pid).values())


def test_only_the_named_models_are_loaded_at_the_start(repository: Path, start_server: StartServer) -> None:
    for name in ("a", "b", "c"):
        models.write_add_sub(repository, name)
    server = start_server(repository, EXPLICIT, "--load-model=a", "--load-model=c")
    assert states(server) == {"a:1": "READY", "b:": "", "c:1": "READY"}


def test_a_star_loads_all_models_at_the_start(repository: Path, start_server: StartServer) -> None:
    for name in ("a", "b"):
        models.write_add_sub(repository, name)
    server = start_server(repository, EXPLICIT, "--load-model=*")
    assert states(server) == {"a:1": "READY", "b:1": "READY"}
    assert unload(server, "a").status == 200


def test_a_model_to_load_that_is_not_there_ends_the_start(repository: Path) -> None:
    models.write_add_sub(repository)
    ended = run_to_end(f"--model-repository={repository}", *PORTS, EXPLICIT, "--load-model=missing")
    assert ended.returncode == 1
    assert "failed to load 'missing', failed to poll from model repository" in ended.stdout
    assert "exiting because 'missing' failed to load" in ended.stdout


def test_a_changed_model_file_is_picked_up_by_a_load(repository: Path, start_server: StartServer) -> None:
    write_plus(repository, 5)
    server = start_server(repository, EXPLICIT, "--load-model=plus")
    assert plus(server) == 5
    write_plus(repository, 6)
    assert plus(server) == 5
    assert load(server, "plus").status == 200
    assert plus(server) == 6


def test_versions_come_and_go_with_a_load(repository: Path, start_server: StartServer) -> None:
    write_plus(repository, 1)
    (repository / "plus/config.pbtxt").write_text("version_policy { all { } }")
    server = start_server(repository, EXPLICIT, "--load-model=plus")
    write_plus(repository, 2, version=2)
    assert states(server) == {"plus:1": "READY"}
    assert load(server, "plus").status == 200
    assert states(server) == {"plus:1": "READY", "plus:2": "READY"}
    assert (plus(server), plus(server, "1")) == (2, 1)
    (repository / "plus/config.pbtxt").write_text("version_policy { specific { versions: [1] } }")
    assert load(server, "plus").status == 200
    assert plus(server) == 1
    gone = server.post(requests.path("plus", "2"), ONE_BODY, ONE_HEADERS)
    assert (gone.status, gone.error) == (
        503,
        "Request for unknown model: 'plus' version 2 is not at ready state",
    )
    eventually(lambda: states(server) == {"plus:1": "READY", "plus:2": "UNAVAILABLE"}, "version 2 is gone")


@dataclass
class Asker:
    """A client that asks without a pause until it is told to stop, and keeps what was not as it should be."""

    server: Server
    stop: threading.Event
    answers: list[int] = field(default_factory=list)
    wrong: list[Response] = field(default_factory=list)

    def run(self) -> None:
        with self.server.connect() as connection:
            while not self.stop.is_set():
                response = connection.ask("POST", requests.path("plus"), ONE_HEADERS, ONE_BODY)
                if response.status == 200:
                    self.answers.append(response.json()["outputs"][0]["data"][0])
                else:
                    self.wrong.append(response)


@pytest.mark.clock
def test_reloads_under_load_lose_no_request(repository: Path, start_server: StartServer) -> None:
    write_plus(repository, 0)
    server = start_server(repository, EXPLICIT, "--load-model=plus")
    stop = threading.Event()
    askers = [Asker(server, stop) for _ in range(4)]
    threads = [threading.Thread(target=asker.run) for asker in askers]
    for thread in threads:
        thread.start()
    try:
        for constant in range(1, 16):
            write_plus(repository, constant)
            assert load(server, "plus").status == 200
            seen = [len(asker.answers) for asker in askers]
            eventually(
                lambda seen=seen: all(len(asker.answers) > n for asker, n in zip(askers, seen, strict=True)),  # type: ignore[misc] # bound now
                "everybody is answered",
            )
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for asker in askers:
        assert asker.wrong == []
        assert asker.answers == sorted(asker.answers)
        assert asker.answers[-1] == 15
    settles(lambda: instance_threads(server, "plus") <= 2, "the replaced versions' threads have ended")


def test_a_request_is_finished_where_it_began(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository)
    server = start_server(repository, EXPLICIT, "--load-model=slow")
    with occupy(server) as occupied:
        assert load(server, "slow").status == 200
        with server.connect() as connection:
            connection.send(slow_request(3))
            assert connection.receive().json()["outputs"][0]["data"] == [3]
        occupied.go_on()
        assert [occupied.executing.receive().status, occupied.waiting.receive().status] == [200, 200]


@pytest.mark.clock
def test_a_request_that_a_reload_overtakes_is_answered_by_the_new_version(
    repository: Path, start_server: StartServer
) -> None:
    write_plus(repository, 1)
    server = start_server(repository, EXPLICIT, "--load-model=plus")
    with server.connect() as connection:
        whole = frame("POST", requests.path("plus"), ONE_HEADERS, ONE_BODY)
        connection.send(frame("GET", "/v2/health/live") + whole[:-1])
        assert connection.receive("GET").status == 200
        # a thread has its name once it has begun
        eventually(lambda: instance_threads(server, "plus") > 0, "the old version has its thread")
        old = {thread for thread, name in thread_names(server.pid).items() if name.startswith("plus_")}
        write_plus(repository, 2)
        assert load(server, "plus").status == 200
        eventually(lambda: not old & thread_names(server.pid).keys(), "the old version is gone")
        connection.send(whole[-1:])
        assert connection.receive().json()["outputs"][0]["data"] == [2]


def test_a_request_that_an_unload_overtakes_hears_that_the_model_is_gone(
    repository: Path, start_server: StartServer
) -> None:
    write_plus(repository, 1)
    server = start_server(repository, EXPLICIT, "--load-model=plus")
    with server.connect() as connection:
        whole = frame("POST", requests.path("plus"), ONE_HEADERS, ONE_BODY)
        connection.send(frame("GET", "/v2/health/live") + whole[:-1])
        assert connection.receive("GET").status == 200
        assert unload(server, "plus").status == 200
        eventually(lambda: states(server) == {"plus:1": "UNAVAILABLE"}, "the model is gone")
        connection.send(whole[-1:])
        response = connection.receive()
        assert (response.status, response.error) == (
            404,
            "Request for unknown model: 'plus' has no available versions",
        )


def test_an_unload_answers_what_was_accepted(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository)
    server = start_server(repository, EXPLICIT, "--load-model=slow")
    with occupy(server) as occupied:
        assert unload(server, "slow").status == 200
        assert states(server) == {"slow:1": "UNLOADING"}
        assert server.get("/v2/models/slow/ready").status == 404
        occupied.go_on()
        assert [occupied.executing.receive().status, occupied.waiting.receive().status] == [200, 200]
    eventually(lambda: states(server) == {"slow:1": "UNAVAILABLE"}, "the model is gone")


@pytest.mark.alone
def test_an_unload_gives_threads_and_memory_back(repository: Path, start_server: StartServer) -> None:
    weights = models.large(64 << 20)
    models.write(repository, "large", weights, "instance_group [ { kind: KIND_CPU count: 3 } ]")
    server = start_server(repository, EXPLICIT)
    assert load(server, "large").status == 200
    eventually(lambda: instance_threads(server, "large") == 3, "every instance has its thread")
    loaded = server.memory_kib()
    assert unload(server, "large").status == 200
    settles(lambda: instance_threads(server, "large") == 0, "the threads have ended")
    settles(lambda: server.memory_kib() < loaded - (48 << 10), "the weights are gone")


@dataclass
class HeldLoad:
    """A load that stands still until it is let go on."""

    connection: Connection
    file: HeldFile

    def go_on(self) -> Response:
        self.file.release()
        return self.connection.receive()


@contextmanager
def hold_load(server: Server, repository: Path) -> Iterator[HeldLoad]:
    write_plus(repository, 1)
    with hold_file(repository / "plus/1/model.onnx") as file, server.connect() as connection:
        connection.send(frame("POST", "/v2/repository/models/plus/load"))
        file.wait_until_asked_for()
        yield HeldLoad(connection, file)


def test_a_model_changes_one_order_at_a_time_and_others_meanwhile(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, EXPLICIT)
    with hold_load(server, repository) as held, ExitStack() as opened:
        # more of them than there are threads that load
        order = frame("POST", "/v2/repository/models/plus/load")
        later = [opened.enter_context(send_behind_another(server, order)) for _ in range(8)]
        assert load(server, "add_sub").status == 200
        assert server.post(requests.path("add_sub"), BODY, HEADERS).status == 200
        assert not any(connection.has_answer() for connection in later)
        assert held.go_on().status == 200
        assert [connection.receive().status for connection in later] == [200] * 8
    assert states(server) == {"add_sub:1": "READY", "plus:1": "READY"}
    assert unload(server, "plus").status == 200


def test_loads_and_unloads_of_one_model_by_many_clients_all_succeed(
    repository: Path, start_server: StartServer
) -> None:
    write_plus(repository, 1)
    models.write_add_sub(repository)
    server = start_server(repository, EXPLICIT)

    def change(worker: int) -> list[tuple[int, str]]:
        orders = Random(worker)
        with server.connect() as connection:
            answers = []
            for _ in range(20):
                verb, name = orders.choice(("load", "unload")), orders.choice(("plus", "add_sub"))
                connection.send(frame("POST", f"/v2/repository/models/{name}/{verb}"))
                answer = connection.receive()
                answers.append((answer.status, answer.body.decode()))
            return answers

    with ThreadPoolExecutor(8) as pool:
        answers = [answer for done in pool.map(change, range(8)) for answer in done]
    assert {status for status, _ in answers} == {200}, answers
    assert load(server, "plus").status == 200
    assert states(server)["plus:1"] == "READY"


def test_an_ensemble_waits_for_a_step_that_is_being_loaded(repository: Path, start_server: StartServer) -> None:
    (repository / "both" / "1").mkdir(parents=True)
    (repository / "both" / "config.pbtxt").write_text(BOTH)
    server = start_server(repository, EXPLICIT)
    order = frame("POST", "/v2/repository/models/both/load")
    with hold_load(server, repository) as held, send_behind_another(server, order) as waiting:
        assert not waiting.has_answer()
        assert held.go_on().status == 200
        assert waiting.receive().status == 200
    assert states(server) == {"both:1": "READY", "plus:1": "READY"}


def test_an_ensemble_that_waits_for_its_model_is_not_missed(repository: Path, start_server: StartServer) -> None:
    (repository / "both" / "1").mkdir(parents=True)
    (repository / "both" / "config.pbtxt").write_text(BOTH)
    write_plus(repository, 1)
    server = start_server(repository, EXPLICIT)
    assert load(server, "both").status == 200
    assert unload(server, "plus").status == 200
    eventually(lambda: states(server) == {"both:1": "UNAVAILABLE", "plus:1": "UNAVAILABLE"}, "both have left")
    rows = server.post("/v2/repository/index", b"").json()
    (both,) = (row for row in rows if row["name"] == "both")
    assert "ensemble 'both' depends on 'plus' which has no loaded version" in both["reason"]
    # as in Triton, where it is unloaded
    assert server.is_ready()
    assert load(server, "plus").status == 200
    assert states(server) == {"both:1": "READY", "plus:1": "READY"}


@pytest.mark.parametrize("for_another", [False, True], ids=["its own", "of another"])
def test_an_unload_of_an_ensemble_ends_its_wait_for_a_step(
    repository: Path, start_server: StartServer, *, for_another: bool
) -> None:
    (repository / "both" / "1").mkdir(parents=True)
    (repository / "both" / "config.pbtxt").write_text(BOTH)
    write_plus(repository, 1)
    server = start_server(repository, EXPLICIT)
    with hold_file(repository / "plus/1/model.onnx") as file, server.connect() as step, server.connect() as loading:
        if for_another:
            step.send(frame("POST", "/v2/repository/models/plus/load"))
            file.wait_until_asked_for()
        loading.send(frame("POST", "/v2/repository/models/both/load"))
        file.wait_until_asked_for()

        def is_given_up() -> bool:
            # an unload that comes before the load ends nothing
            assert unload(server, "both").status == 200
            return loading.has_answer()

        eventually(is_given_up, "the load is given up")
        assert loading.receive().status == 400
        file.release()
        assert not for_another or step.receive().status == 200
    assert states(server).get("both:1") != "READY"


def test_a_client_that_leaves_does_not_stop_its_load(repository: Path, start_server: StartServer) -> None:
    server = start_server(repository, EXPLICIT)
    with hold_load(server, repository) as held:
        held.connection.close()
    eventually(lambda: states(server) == {"plus:1": "READY"}, "the model is loaded")


def test_a_load_under_way_is_given_up_and_answered_before_the_server_ends(
    repository: Path, start_server: StartServer
) -> None:
    server = start_server(repository, EXPLICIT)
    with hold_load(server, repository) as held:
        server.terminate()
        answer = held.connection.receive()
        assert (answer.status, answer.error, answer.header("kushi-error")) == (503, "Server not ready", "shutting_down")
        assert server.wait() == 0
    assert "Traceback" not in server.log.text()


def test_orders_that_have_not_begun_are_refused_when_the_server_drains(
    repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, EXPLICIT, "--model-load-thread-count=1")
    with hold_load(server, repository) as held:
        with send_behind_another(server, frame("POST", "/v2/repository/models/add_sub/load")) as waiting:
            server.terminate()
            answer = waiting.receive()
        assert (answer.status, answer.error) == (503, "Server not ready")
        assert held.go_on().status == 503
    assert server.wait() == 0
