"""The protocol on the Bento's own port: to a client it makes no difference that the engine is behind it."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output, Tensor
from tests.e2e.bento import ANSWER_S, Bento, service_of
from tests.gates import HELD, Gate
from tests.integration.occupied import slow_request
from tests.raw_http import Connection, chunked, fetch, frame
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.raw_http import Headers, Response

HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")]))
PATH = requests.path("add_sub")
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("relay") / "models"
    models.write_add_sub(repository)
    models.write_gated(repository)
    for datatype in ("FP32", "BYTES"):
        name = f"identity_{datatype.lower()}"
        io = ("INPUT0", datatype, [-1]), ("OUTPUT0", datatype, [-1])
        text = models.config(name, io[:1], io[1:], max_batch_size=8)
        models.write(repository, name, models.identity(datatype), text)
    return repository


@pytest.fixture(scope="module")
def bento(repository: Path) -> Iterator[Bento]:
    with Bento(service_of(repository.parent, repository)).until_ready() as bento:
        yield bento


@pytest.fixture
def client(bento: Bento) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{bento.port}", network_timeout=ANSWER_S) as client:
        yield client


def added(client: triton.InferenceServerClient, *, binary: bool) -> triton.InferResult:
    inputs = [triton.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for place, one in enumerate(inputs):
        one.set_data_from_numpy(np.full((1, 16), place + 20, np.int32), binary_data=binary)
    outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("OUTPUT0", "OUTPUT1")]
    return client.infer("add_sub", inputs, outputs=outputs, request_id="mine")


# --- a client of Triton ---


def test_tritonclient_asks_about_the_server(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("add_sub")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.get_model_metadata("add_sub")["inputs"][0]["name"] == "INPUT0"
    assert client.get_model_config("add_sub")["max_batch_size"] == 8
    assert {one["name"] for one in client.get_model_repository_index()} == {
        *("add_sub", "slow", "identity_fp32", "identity_bytes")
    }


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_infers(client: triton.InferenceServerClient, binary: bool) -> None:
    result = added(client, binary=binary)
    assert result.get_response()["id"] == "mine"
    assert np.array_equal(result.as_numpy("OUTPUT0"), np.full((1, 16), 41))
    assert np.array_equal(result.as_numpy("OUTPUT1"), np.full((1, 16), -1))


def test_tritonclient_infers_strings(client: triton.InferenceServerClient) -> None:
    words = np.array([[b"one", b"", "zw\u00f6lf".encode(), b"\0\xff"]], np.object_)
    given = triton.InferInput("INPUT0", words.shape, "BYTES").set_data_from_numpy(words)
    assert np.array_equal(client.infer("identity_bytes", [given]).as_numpy("OUTPUT0"), words)


def test_tritonclient_sees_the_statistics(client: triton.InferenceServerClient) -> None:
    def count() -> int:
        return int(client.get_inference_statistics("add_sub")["model_stats"][0]["inference_count"])

    before = count()
    for _ in range(5):
        added(client, binary=True)
    assert count() == before + 5


def test_tritonclient_sees_errors(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException) as found:
        client.get_model_metadata("nothing")
    assert found.value.message() == "Request for unknown model: 'nothing' is not found"
    given = triton.InferInput("INPUT0", [1, 3], "INT32").set_data_from_numpy(np.zeros((1, 3), np.int32))
    with pytest.raises(InferenceServerException) as found:
        client.infer("add_sub", [given])
    assert found.value.status() == "400"


# --- the same answers as those of the engine itself ---

CASES: dict[str, tuple[str, str, Headers, bytes]] = {
    "server": ("GET", "/v2", (), b""),
    "server, slash": ("GET", "/v2/", (), b""),
    "live": ("GET", "/v2/health/live", (), b""),
    "ready": ("GET", "/v2/health/ready", (), b""),
    "model": ("GET", "/v2/models/add_sub", (), b""),
    "model, escaped": ("GET", "/v2/models/%61dd_sub", (), b""),
    "model, escaped slash": ("GET", "/v2/models/add%2Fsub", (), b""),
    "model, escaped, not utf-8": ("GET", "/v2/models/%ff%fe", (), b""),
    "model with a query": ("GET", "/v2/models/add_sub?a=b&c=%20d", (), b""),
    "config": ("GET", "/v2/models/add_sub/config", (), b""),
    "version": ("GET", "/v2/models/add_sub/versions/1", (), b""),
    "unknown version": ("GET", "/v2/models/add_sub/versions/7", (), b""),
    "index": ("POST", "/v2/repository/index", (), b"{}"),
    "unknown model": ("GET", "/v2/models/nothing", (), b""),
    "unknown route": ("GET", "/v2/nothing", (), b""),
    "wrong method": ("DELETE", "/v2/models/add_sub", (), b""),
    "head, live": ("HEAD", "/v2/health/live", (), b""),
    "head, server": ("HEAD", "/v2", (), b""),
    "head, unknown": ("HEAD", "/v2/models/nothing", (), b""),
    "options": ("OPTIONS", "/v2", (), b""),
    "infer": ("POST", PATH, HEADERS, BODY),
    "infer, gzip": ("POST", PATH, [*HEADERS, ("content-encoding", "gzip")], gzip.compress(BODY)),
    "infer, accepts gzip": ("POST", PATH, [*HEADERS, ("accept-encoding", "gzip")], BODY),
    "infer, chunked": ("POST", PATH, [*HEADERS, ("transfer-encoding", "chunked")], chunked([BODY[:7], BODY[7:]])),
    "infer, chunked in bytes": (
        "POST",
        PATH,
        [*HEADERS, ("transfer-encoding", "chunked")],
        chunked([BODY[place : place + 1] for place in range(len(BODY))]),
    ),
    "infer, no JSON": ("POST", PATH, (), b"nonsense"),
    "infer, no body": ("POST", PATH, (), b""),
    "infer, empty chunked": ("POST", PATH, [("transfer-encoding", "chunked")], chunked([])),
    "infer, unknown model": ("POST", requests.path("nothing"), HEADERS, BODY),
    "infer, wrong header length": ("POST", PATH, [(requests.HEADER_LENGTH, "99999")], BODY),
    "infer, unknown coding": ("POST", PATH, [("content-encoding", "zstd")], BODY),
    "infer, no gzip": ("POST", PATH, [("content-encoding", "gzip")], BODY),
    "load": ("POST", "/v2/repository/models/add_sub/load", (), b"{}"),
    "hop by hop": ("GET", "/v2", [("connection", "x-secret"), ("x-secret", "1"), ("te", "trailers")], b""),
    "get with a body": ("GET", "/v2/health/live", [("content-length", "4")], b"body"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_that_of_the_engine(bento: Bento, case: str) -> None:
    with Connection(bento.engine_http, ANSWER_S) as direct, bento.connect() as relayed:
        wanted, found = (connection.ask(*CASES[case]) for connection in (direct, relayed))
        assert (found.status, comparable(found)) == (wanted.status, comparable(wanted))
        assert sorted(name for name, _ in found.headers).count("date") == 1
        # and the connection goes on
        assert relayed.ask("GET", "/v2/health/live").status == 200


def comparable(response: Response) -> tuple[Any, ...]:
    headers = {name: value for name, value in response.headers if name != "date"}
    return headers, response.body


# --- bodies ---


def large(count: int) -> tuple[Headers, bytes, bytes]:
    numbers = np.random.default_rng(0).random((1, count), np.float32)
    tensor = Tensor("INPUT0", "FP32", (1, count), raw=numbers.tobytes())
    headers, body = requests.body(Infer("identity_fp32", [tensor], [Output("OUTPUT0", binary=True)]))
    return headers, body, numbers.tobytes()


def test_large_bodies_pass_both_ways(bento: Bento) -> None:
    headers, body, wanted = large(30 * MEGABYTE // 4)
    with bento.connect() as connection:
        for _ in range(2):
            answer = connection.ask("POST", requests.path("identity_fp32"), headers, body)
            assert answer.status == 200
            assert answer.binary == wanted


def test_a_large_body_in_chunks_passes(bento: Bento) -> None:
    headers, body, wanted = large(8 * MEGABYTE // 4)
    parts = [body[start : start + 100_000] for start in range(0, len(body), 100_000)]
    answer = bento.fetch(
        "POST", requests.path("identity_fp32"), [*headers, ("transfer-encoding", "chunked")], chunked(parts)
    )
    assert answer.status == 200
    assert answer.binary == wanted


@pytest.mark.alone
def test_clients_that_do_not_read_take_no_memory_of_the_workers(bento: Bento) -> None:
    headers, body, wanted = large(16 * MEGABYTE // 4)
    request = frame("POST", requests.path("identity_fp32"), headers, body)
    workers = bento.workers("Reader")
    bento.fetch("POST", requests.path("identity_fp32"), headers, body)
    before = bento.memory_kib(workers)
    connections = [bento.connect(30) for _ in range(8)]
    try:
        for connection in connections:
            connection.send(request)
        for connection in connections:
            eventually(connection.has_answer, "an answer begins")
        # 128 MB are on their way
        assert bento.memory_kib(workers) - before < 48 * 1024
        for connection in connections:
            assert connection.receive().binary == wanted
    finally:
        for connection in connections:
            connection.close()


def test_a_connection_is_kept_for_many_requests(bento: Bento) -> None:
    with bento.connect() as connection:
        for _ in range(200):
            assert connection.ask("POST", PATH, HEADERS, BODY).status == 200


def test_requests_sent_at_once_are_answered_in_their_order(bento: Bento) -> None:
    with bento.connect() as connection:
        documents = [
            requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")], id=str(number))) for number in range(10)
        ]
        connection.send(b"".join(frame("POST", PATH, *document) for document in documents))
        assert [connection.receive().json()["id"] for _ in documents] == [str(number) for number in range(10)]


def test_a_client_that_asks_to_close_is_obeyed(bento: Bento) -> None:
    with bento.connect() as connection:
        assert connection.ask("POST", PATH, [*HEADERS, ("connection", "close")], BODY).status == 200
        assert connection.is_closed()


def test_a_client_that_waits_for_leave_gets_it(bento: Bento) -> None:
    with bento.connect() as connection:
        headers = [*HEADERS, ("expect", "100-continue"), ("content-length", str(len(BODY)))]
        connection.send(frame("POST", PATH, headers))
        assert connection.receive().status == 100
        connection.send(BODY)
        assert connection.receive().status == 200


def test_a_body_without_a_length_is_not_taken_for_a_request(bento: Bento) -> None:
    inner = frame("POST", PATH, HEADERS, BODY)
    headers = [("transfer-encoding", "chunked"), ("content-type", "text/plain")]
    with Connection(bento.engine_http, ANSWER_S) as direct, bento.connect() as relayed:
        wanted, found = (
            connection.ask("POST", "/v2/models/add_sub/infer", headers, chunked([inner]))
            for connection in (direct, relayed)
        )
        assert (found.status, found.body) == (wanted.status, wanted.body)
        assert found.status != 200
        assert relayed.ask("POST", PATH, HEADERS, BODY).status == 200


def test_a_length_that_is_hidden_from_the_engine_leaves_nothing_for_the_next_request(bento: Bento) -> None:
    inner = b"GET /v2/models/add_sub/config HTTP/1.1\r\nx-ignored: "
    headers = [("connection", "content-length"), ("content-length", str(len(inner)))]
    with bento.connect() as connection:
        for _ in range(10):
            assert connection.ask("POST", requests.path("nothing"), headers, inner).status == 404
            assert connection.ask("GET", "/v2/models/add_sub/ready").json() == {"name": "add_sub", "ready": True}


def test_a_route_beside_the_protocol_is_not_relayed(bento: Bento) -> None:
    for path in ("/v2x", "/v22/health/live", "/V2", "/v1", "//v2", "/v2/../v2/health/live", "/v2/%2E%2e%2Fmetrics"):
        answer = bento.fetch("GET", path)
        assert answer.status == 404
        assert answer.error.endswith(" here, /docs.json lists what there is")


def test_endpoints_and_protocol_share_the_engine(bento: Bento) -> None:
    answer = bento.fetch("POST", "/add", [("content-type", "application/json")], b'{"one": 40, "other": 2}')
    assert (answer.status, answer.json()) == (200, 42)


# --- clients that go away ---


@pytest.fixture
def executing(bento: Bento, repository: Path) -> Iterator[Connection]:
    """A request that the only instance of the slow model works on, to the end of the test"""
    with Gate(repository) as gate, bento.connect() as connection:
        connection.send(slow_request(HELD))
        gate.until_reached()
        yield connection
        gate.let_through()
        assert connection.receive().status == 200


@pytest.mark.clock
@pytest.mark.parametrize("pause", [0, 0.3], ids=["at once", "after a slow upload"])
def test_a_client_that_goes_away_frees_its_place_in_the_queue(
    bento: Bento, executing: Connection, pause: float
) -> None:
    request = slow_request(0)
    with bento.connect() as leaving:
        leaving.send(request[:-1])
        time.sleep(pause)
        leaving.send(request[-1:])
        eventually(lambda: bento.pending("slow") == 1, "it waits")
    eventually(lambda: bento.pending("slow") == 0, "its place is free")
    assert not executing.has_answer()


def test_clients_that_go_away_within_a_request_do_no_harm(bento: Bento) -> None:
    request = frame("POST", PATH, HEADERS, BODY)
    for length in range(1, len(request), 11):
        with bento.connect() as leaving:
            leaving.send(request[:length])
    headers, body, _ = large(MEGABYTE)
    request = frame("POST", requests.path("identity_fp32"), headers, body)
    for _ in range(10):
        with bento.connect() as leaving:
            leaving.send(request)
    assert bento.fetch("POST", PATH, HEADERS, BODY).status == 200


def test_a_broken_framing_ends_the_connection_and_nothing_else(bento: Bento) -> None:
    for request in (
        b"POST /v2/models/add_sub/infer HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v2/models/add_sub/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"POST /v2 HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /v2",
        b"POST /v2\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ):
        with bento.connect() as connection:
            connection.send(request)
            connection.finish_sending()
            answers = []
            while not connection.is_closed():
                answers.append(connection.receive().status)
        assert all(400 <= status < 500 for status in answers), (request, answers)
    assert bento.fetch("GET", "/v2/health/live").status == 200


def test_no_request_is_smuggled_through_a_header(bento: Bento) -> None:
    with bento.connect() as connection:
        connection.send(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\nx-a: b\rGET /v2/models/nothing HTTP/1.1\r\n\r\n")
        assert connection.receive("GET").status in (200, 400)
    path = "/v2/health/live%20HTTP/1.1%0d%0ax:%20y"
    answers = [fetch(address, "GET", path).status for address in (bento.address, bento.engine_http)]
    assert answers[0] == answers[1] != 200
    assert json.loads(bento.fetch("GET", "/v2").body)["name"] == "triton"


def test_the_engine_is_told_of_no_signal_of_the_group(bento: Bento) -> None:
    engine = bento.engine
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(engine, number)
    assert bento.fetch("POST", PATH, HEADERS, BODY).status == 200
    assert bento.engine == engine
