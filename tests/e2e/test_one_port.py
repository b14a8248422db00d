"""gRPC on the port of a Bento: the worker that a client reaches hands its connection to the engine, for good."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output
from tests.e2e.bento import Bento, service_of
from tests.raw_http import frame
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST, SECOND = np.arange(16, dtype=np.int32)[None], np.ones((1, 16), np.int32)
HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")]))
HTTP = frame("POST", requests.path("add_sub"), HEADERS, BODY)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
HELD_STEPS = 100_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one_port")
    models.write_add_sub(folder / "models")
    models.write_slow(folder / "models")
    return service_of(folder, folder / "models")


@pytest.fixture(scope="module")
def bento(folder: Path) -> Iterator[Bento]:
    with Bento(folder).until_ready() as bento:
        yield bento


def client_of(bento: Bento) -> triton.InferenceServerClient:
    """With a connection of its own: channels share those of others unless they differ"""
    own = [("grpc.use_local_subchannel_pool", 1)]
    return triton.InferenceServerClient(f"127.0.0.1:{bento.port}", channel_args=own)


def inputs(first: np.ndarray[Any, Any] = FIRST) -> list[triton.InferInput]:
    made = [triton.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for one, values in zip(made, (first, SECOND), strict=True):
        one.set_data_from_numpy(values)
    return made


def assert_adds(client: triton.InferenceServerClient) -> None:
    assert (client.infer("add_sub", inputs()).as_numpy("OUTPUT0") == FIRST + SECOND).all()


def slow_input() -> list[triton.InferInput]:
    steps = triton.InferInput("STEPS", [1, 1], "INT64")
    steps.set_data_from_numpy(np.array([[HELD_STEPS]]))
    return [steps]


def test_tritonclient_asks_the_engine_by_the_port_of_the_bento(bento: Bento) -> None:
    for _ in range(6):
        with client_of(bento) as client:
            assert client.is_server_ready()
            assert client.get_model_metadata("add_sub").name == "add_sub"
            assert_adds(client)
    assert bento.fetch("POST", requests.path("add_sub"), HEADERS, BODY).status == 200
    assert bento.fetch("POST", "/add", [("content-type", "application/json")], b'{"one": 1, "other": 2}').json() == 3


def test_errors_are_those_of_the_engine(bento: Bento) -> None:
    with client_of(bento) as client, pytest.raises(InferenceServerException, match="unknown model: 'missing'") as error:
        client.infer("missing", inputs())
    assert error.value.status() == "StatusCode.NOT_FOUND"


def test_many_connections_at_once_and_many_requests_of_a_stream(bento: Bento) -> None:
    answers: SimpleQueue[Any] = SimpleQueue()

    def asks(_: int) -> None:
        with client_of(bento) as client:
            for _ in range(20):
                assert_adds(client)

    with ThreadPoolExecutor(16) as threads, client_of(bento) as client:
        list(threads.map(asks, range(16)))
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(50):
            client.async_stream_infer("add_sub", inputs(FIRST + number), request_id=str(number))
        for number in range(50):
            result, error = answers.get(timeout=30)
            assert error is None
            assert result.get_response().id == str(number)
            assert (result.as_numpy("OUTPUT0") == FIRST + number + SECOND).all()
        client.stop_stream()


@pytest.mark.clock
@pytest.mark.parametrize("pieces", [[PREFACE + SETTINGS], [PREFACE[:1], PREFACE[1:2], PREFACE[2:] + SETTINGS]])
def test_a_connection_is_the_engines_however_it_begins(bento: Bento, pieces: list[bytes]) -> None:
    with bento.connect() as connection:
        for piece in pieces:
            connection.send(piece)
        # the engine's own settings come first
        begin = connection.socket.recv(9, 0x100)  # MSG_WAITALL
        assert (begin[3], len(begin)) == (4, 9)
        eventually(lambda: bento.worker_of(connection) == bento.engine, "the engine alone has it")


@pytest.mark.clock
def test_a_request_whose_first_letter_comes_alone_is_answered_by_the_worker(bento: Bento) -> None:
    with bento.connect() as connection:
        connection.send(HTTP[:1])
        connection.send(HTTP[1:])
        assert connection.receive().status == 200
        assert bento.worker_of(connection) in bento.workers("Reader")


@pytest.mark.parametrize("rest", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096])
def test_rubbish_behind_the_preface_ends_its_connection_alone(bento: Bento, rest: bytes) -> None:
    with client_of(bento) as client:
        assert_adds(client)
        with bento.connect() as connection:
            connection.send(PREFACE + rest)
            # its settings, and where there is a fault what it thinks of it
            while rest and connection.socket.recv(4096):
                pass
        assert_adds(client)


def test_a_connection_outlives_the_worker_that_accepted_it(bento: Bento) -> None:
    with client_of(bento) as client:
        assert_adds(client)
        for pid in bento.workers("Reader"):
            os.kill(pid, signal.SIGKILL)
        for _ in range(20):
            assert_adds(client)
    eventually(lambda: len(bento.workers("Reader")) == 2 and bento.is_ready(), "there are workers again")


def status_of_a_call(client: triton.InferenceServerClient) -> str:
    try:
        assert_adds(client)
    except InferenceServerException as error:
        return str(error.status())
    return "answered"


def test_while_there_is_no_engine_clients_hear_so_and_afterwards_they_are_served_again(folder: Path) -> None:
    with Bento(folder).until_ready() as bento, client_of(bento) as client:
        assert_adds(client)
        before = bento.engine
        os.kill(before, signal.SIGKILL)
        eventually(lambda: status_of_a_call(client) == "StatusCode.UNAVAILABLE", "the client hears of it")
        eventually(lambda: bento.engines() not in ([], [before]) and bento.is_ready(), "there is another engine")
        told = set()

        def is_served() -> bool:
            told.add(status_of_a_call(client))
            return "answered" in told

        eventually(is_served, "the same client is served again")
        assert told <= {"answered", "StatusCode.UNAVAILABLE"}


def test_calls_that_were_accepted_are_answered_when_the_service_ends(folder: Path) -> None:
    with Bento(folder).until_ready() as bento, client_of(bento) as client, ThreadPoolExecutor(1) as thread:
        asked = thread.submit(client.infer, "slow", slow_input())
        eventually(lambda: client.get_inference_statistics("slow") is not None and not asked.done(), "it is asked")
        bento.terminate()
        assert asked.result().get_response().model_name == "slow"
        bento.stop()
    with pytest.raises((InferenceServerException, grpc.RpcError)), client_of(bento) as client:
        client.is_server_live()


@pytest.mark.parametrize(
    "variables", [{"KUSHI_ALLOW_GRPC": "false"}, {"KUSHI_HTTP_RESTRICTED_API": "inference:key=value"}]
)
def test_where_grpc_is_switched_off_or_only_http_is_locked_nothing_is_handed_over(
    folder: Path, variables: dict[str, Any]
) -> None:
    with Bento(folder, **variables).until_ready() as bento, bento.connect() as connection:
        connection.send(PREFACE + SETTINGS)
        assert connection.receive().status == 400
    assert "turned away" not in bento.log.text()
