"""A service whose engine runs elsewhere: its file is the same, only a variable says where."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output
from tests.e2e.bento import ANSWER_S, Bento, service_of
from tests.integration.grpc_doors import port_of
from tests.integration.occupied import LONG_STEPS, pending, slow_request
from tests.raw_http import frame
from tests.serving import Server, labelled, metrics
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.raw_http import Response

pytestmark = pytest.mark.clock

JSON = [("content-type", "application/json")]
STEPS = b'{"steps": %d}' % LONG_STEPS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a service whose own repository does not exist"""
    return service_of(tmp_path_factory.mktemp("remote"), tmp_path_factory.getbasetemp() / "nowhere")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    models.write_add_sub(path)
    models.write_slow(path)
    return path


class Remote:
    """An engine that is always found on the same port"""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self.server = Server.start(repository)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.http[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()

    def again(self) -> None:
        """Brings it back"""
        if self.server.process.poll() is None:
            self.server.thaw()
        else:
            self.server = Server.start(self._repository, f"--http-port={self.server.http[1]}")


@pytest.fixture(scope="module")
def running(folder: Path, repository: Path) -> Iterator[tuple[Remote, Bento]]:
    with ExitStack() as stack:
        remote = stack.enter_context(Remote(repository))
        yield remote, stack.enter_context(Bento(folder, KUSHI_ENGINE_URL=remote.url).until_ready())


@pytest.fixture
def remote(running: tuple[Remote, Bento]) -> Iterator[Remote]:
    remote, bento = running
    yield remote
    remote.again()
    eventually(bento.is_ready, "the service is ready again")


@pytest.fixture
def bento(running: tuple[Remote, Bento]) -> Bento:
    return running[1]


@pytest.fixture
def client(bento: Bento) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{bento.port}", network_timeout=ANSWER_S) as client:
        yield client


def add(bento: Bento) -> Response:
    return bento.fetch("POST", "/add", JSON, b'{"one": 1, "other": 2}')


def test_it_starts_no_engine(bento: Bento) -> None:
    assert bento.engines() == []
    assert bento.workers("Models") == []
    assert len(bento.workers("Reader")) == 2


def test_the_endpoints_ask_the_engine_elsewhere(bento: Bento) -> None:
    assert add(bento).json() == 3


def test_tritonclient_asks_the_engine_through_the_port_of_the_service(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.get_model_metadata("add_sub")["inputs"][0]["name"] == "INPUT0"
    inputs = [triton.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for place, one in enumerate(inputs):
        one.set_data_from_numpy(np.full((1, 16), place + 20, np.int32))
    result = client.infer("add_sub", inputs, request_id="mine")
    assert result.get_response()["id"] == "mine"
    assert np.array_equal(result.as_numpy("OUTPUT0"), np.full((1, 16), 41))
    with pytest.raises(InferenceServerException, match="'nothing' is not found"):
        client.get_model_metadata("nothing")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2"),
        ("HEAD", "/v2"),
        ("GET", "/v2/models/add_sub?a=b"),
        ("GET", "/v2/models/add%2Fsub"),
        ("POST", "/v2/repository/index"),
        ("GET", "/v2/nothing"),
    ],
)
def test_the_answers_are_those_of_the_engine(running: tuple[Remote, Bento], method: str, path: str) -> None:
    remote, bento = running
    with remote.server.connect() as directly:
        wanted = directly.ask(method, path)
    found = bento.fetch(method, path)
    assert (found.status, found.body) == (wanted.status, wanted.body)
    assert found.header("content-type") == wanted.header("content-type")


def test_the_metrics_of_the_engine_are_below_those_of_the_service(running: tuple[Remote, Bento]) -> None:
    remote, bento = running

    def successes(address: tuple[str, int]) -> float:
        return labelled(metrics(address), "nv_inference_request_success", model="add_sub", version="1")

    before = successes(bento.address)
    add(bento)
    assert successes(bento.address) == successes(remote.server.metrics_address) == before + 1
    assert b"bentoml_service_request" in bento.fetch("GET", "/metrics").body


@pytest.mark.parametrize("frozen", [False, True], ids=["dead", "frozen"])
def test_an_engine_that_is_away_makes_503_until_it_is_back(remote: Remote, bento: Bento, frozen: bool) -> None:
    relayed = frame(
        "POST", requests.path("add_sub"), *requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")]))
    )
    # three, so that one is known to execute while others wait
    waiting = [bento.connect() for _ in range(4)]
    for place, connection in enumerate(waiting):
        called = frame("POST", "/slow", JSON, STEPS)
        connection.send(slow_request(LONG_STEPS) if place % 2 else called)
    eventually(lambda: pending(remote.server) >= 2, "they wait")
    if frozen:
        remote.server.freeze()
    else:
        remote.server.kill()
    for connection in waiting:
        with connection:
            answer = connection.receive()
            assert answer.status == 503
            assert answer.header("retry-after") == "1"
            assert "engine" in answer.error or "server" in answer.error
    with bento.connect() as connection:
        connection.send(relayed)
        assert (
            connection.receive().error == "the engine is not there yet, or not any more: /readyz answers 200 when it is"
        )
    assert add(bento).status == 503
    assert bento.fetch("GET", "/readyz").status == 503
    assert bento.fetch("GET", "/livez").status == 200
    # those of the service alone
    assert b"nv_inference" not in bento.fetch("GET", "/metrics").body
    remote.again()
    eventually(bento.is_ready, "the service is ready again")
    assert add(bento).json() == 3
    with bento.connect() as connection:
        connection.send(relayed)
        assert connection.receive().status == 200


def test_an_engine_on_this_host_is_asked_through_its_local_socket(
    folder: Path, repository: Path, tmp_path: Path
) -> None:
    server = Server.start(repository, f"--local-socket={tmp_path / 'local'}")
    try:
        with Bento(folder, KUSHI_ENGINE_URL=f"unix://{tmp_path / 'local'}").until_ready() as bento:
            assert bento.engines() == []
            assert add(bento).json() == 3
            assert b"nv_inference" in bento.fetch("GET", "/metrics").body
            # no HTTP is spoken there
            assert bento.fetch("GET", "/v2").status == 404
    finally:
        server.stop()


def test_an_engine_elsewhere_is_asked_over_grpc(folder: Path, repository: Path) -> None:
    server = Server.start(repository)
    try:
        with Bento(folder, KUSHI_ENGINE_URL=f"grpc://127.0.0.1:{port_of(server)}").until_ready() as bento:
            assert bento.engines() == []
            assert add(bento).json() == 3
            assert b"nv_inference" in bento.fetch("GET", "/metrics").body
            # no HTTP/1.1 is spoken there
            assert bento.fetch("GET", "/v2").status == 404
    finally:
        server.stop()


def test_a_url_that_cannot_be_asked_ends_it(folder: Path) -> None:
    bento = Bento(folder, KUSHI_ENGINE_URL="ftp://engine.example")
    try:
        assert bento.process.wait(ANSWER_S * 3) != 0
        bento.kill()
        assert "unknown scheme 'ftp'" in bento.log.text()
    finally:
        bento.kill()
