"""Streams of the gRPC door: many requests in one call, and any number of answers to each"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, TypeAlias

import grpc
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import InferenceServerClient as Client
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from runners import Engine
from tests.integration.grpc_doors import SERVICE, port_of
from tests.integration.python_models import models as python_models
from tests.integration.test_grpc import array_input
from tests.raw_http2 import Code, Http2, Kind
from tests.serving import GRPC_LINE
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

pytestmark = pytest.mark.clock

Answers: TypeAlias = "queue.Queue[tuple[triton.InferResult, InferenceServerException]]"


def next_of(answers: Answers) -> tuple[triton.InferResult, InferenceServerException]:
    return answers.get(timeout=20)


@pytest.fixture
def streams(repository: Path) -> Iterator[tuple[Client, Answers]]:
    """A client whose stream is open, of models that count and add"""
    python_models.write(repository, "counting", python_models.COUNTING, python_models.COUNTING_CONFIG)
    python_models.write(repository, "add_sub", python_models.ADD_SUB, python_models.ADD_SUB_CONFIG)
    with Engine(repository) as engine, Client(f"127.0.0.1:{engine.serve_grpc(port=0)}") as client:
        answers: Answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        yield client, answers
        client.stop_stream()


def count(number: int) -> list[triton.InferInput]:
    return [array_input("COUNT", "INT32", np.array([number], np.int32))]


def test_a_decoupled_model_gives_as_many_answers_as_it_likes(streams: tuple[Client, Answers]) -> None:
    client, answers = streams
    client.async_stream_infer("counting", count(3), request_id="three", enable_empty_final_response=True)
    heard = []
    for _ in range(4):
        result, error = next_of(answers)
        assert error is None
        response = result.get_response()
        number = result.as_numpy("NUMBER")
        final = response.parameters["triton_final_response"].bool_param
        heard.append((response.id, None if number is None else number.item(), final))
    assert heard == [("three", 0, False), ("three", 1, False), ("three", 2, False), ("three", None, True)]
    # more than any window
    client.async_stream_infer("counting", count(20_000))
    assert [next_of(answers)[0].as_numpy("NUMBER").item() for _ in range(20_000)] == list(range(20_000))
    with pytest.raises(InferenceServerException, match="ModelInfer RPC doesn't support models with decoupled"):
        client.infer("counting", count(3))


def test_answers_of_one_stream_come_in_the_order_of_their_requests(streams: tuple[Client, Answers]) -> None:
    client, answers = streams
    rows = [np.full((1, 4), number, np.float32) for number in range(100)]
    for number, row in enumerate(rows):
        inputs = [array_input("INPUT0", "FP32", row), array_input("INPUT1", "FP32", row)]
        model = "nix" if number == 50 else "add_sub"
        client.async_stream_infer(model, inputs, request_id=str(number))
    for number, row in enumerate(rows):
        result, error = next_of(answers)
        if number == 50:
            assert error.message() == "Request for unknown model: 'nix' is not found"
        else:
            assert (error, result.get_response().id) == (None, str(number))
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), 2 * row)


def test_an_error_ends_a_stream_where_its_client_wants_that(repository: Path) -> None:
    python_models.write(repository, "add_sub", python_models.ADD_SUB, python_models.ADD_SUB_CONFIG)
    with Engine(repository) as engine, Client(f"127.0.0.1:{engine.serve_grpc(port=0)}") as client:
        answers: Answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)), headers={"triton_grpc_error": "true"})
        client.async_stream_infer("nix", count(3))
        _, error = next_of(answers)
        assert error.status() == "StatusCode.NOT_FOUND"
        client.stop_stream()


def test_calls_that_were_accepted_are_answered_before_the_server_ends(
    repository: Path, start_server: StartServer
) -> None:
    python_models.write(repository, "counting", python_models.COUNTING, python_models.COUNTING_CONFIG)
    server = start_server(repository, "--grpc-port=0")
    port = server.log.wait_for(GRPC_LINE, 10).group(1)
    with Client(f"127.0.0.1:{port}") as client:
        answers: Answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("counting", count(30_000))
        first, _ = next_of(answers)
        assert first.as_numpy("NUMBER").item() == 0
        ending = threading.Thread(target=server.stop)
        ending.start()
        assert [next_of(answers)[0].as_numpy("NUMBER").item() for _ in range(29_999)] == list(range(1, 30_000))
        client.stop_stream()
        ending.join(30)
    assert server.process.returncode == 0


def counting_request(number: int) -> service_pb2.ModelInferRequest:
    asked = service_pb2.ModelInferRequest(model_name="counting")
    asked.inputs.add(name="COUNT", datatype="INT32", shape=[1])
    asked.raw_input_contents.append(np.array([number], np.int32).tobytes())
    return asked


def counting_server(repository: Path, start_server: StartServer) -> tuple[Server, str]:
    python_models.write(repository, "counting", python_models.COUNTING, python_models.COUNTING_CONFIG)
    server = start_server(repository, "--grpc-port=0")
    return server, f"127.0.0.1:{server.log.wait_for(GRPC_LINE, 10).group(1)}"


def test_a_stream_without_requests_does_not_hold_up_the_end_of_the_server(
    repository: Path, start_server: StartServer
) -> None:
    server, address = counting_server(repository, start_server)
    with Client(address) as client:
        answers: Answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("counting", count(1))
        assert next_of(answers)[0].as_numpy("NUMBER").item() == 0
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 5
        _, error = next_of(answers)
        assert error.status() == "StatusCode.UNAVAILABLE"
        client.stop_stream()


@pytest.mark.alone
def test_a_reader_that_is_slow_holds_no_more_than_its_window(repository: Path, start_server: StartServer) -> None:
    server, address = counting_server(repository, start_server)
    asked = counting_request(300_000)
    with grpc.insecure_channel(address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        assert len(list(stub.ModelStreamInfer(iter([counting_request(10)])))) == 10
        memory = server.memory_kib()
        stream = stub.ModelStreamInfer(iter([asked]))
        next(stream)
        time.sleep(2)
        assert server.memory_kib() - memory < 16 << 10
        last = 0
        for answer in stream:
            last = int(np.frombuffer(answer.infer_response.raw_output_contents[0], np.int32)[0])
        assert last == 299_999


@pytest.mark.parametrize("window", [0, 1000])
def test_a_reader_that_takes_nothing_gives_the_model_back(
    repository: Path, start_server: StartServer, window: int
) -> None:
    source = python_models.COUNTING.replace(
        "threading.Thread(target=self.count, args=(request.get_response_sender(), count)).start()",
        "self.count(request.get_response_sender(), count)",
    )
    python_models.write(repository, "counting", source, python_models.COUNTING_CONFIG)
    server = start_server(repository, "--grpc-port=0", "--http-body-timeout-secs=1")
    port = port_of(server)
    with Http2(("127.0.0.1", port), window=window) as deaf, Client(f"127.0.0.1:{port}") as client:
        deaf.ask(1, f"{SERVICE}/ModelStreamInfer", counting_request(300_000).SerializeToString())
        # the one instance of the model is its
        assert deaf.until_kind(Kind.HEADERS)
        answers: Answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("counting", count(1))
        assert next_of(answers)[0].as_numpy("NUMBER").item() == 0
        assert deaf.ending(1) == Code.CANCEL
        # the connection goes on, and so does whoever reads
        deaf.grant(0, 1 << 20)
        deaf.ask(3, f"{SERVICE}/ModelStreamInfer", counting_request(1).SerializeToString())
        deaf.grant(3, 1 << 20)
        assert deaf.status(3) == 0


def test_a_model_with_many_answers_holds_up_no_other(streams: tuple[Client, Answers]) -> None:
    client, answers = streams
    row = np.ones((1, 4), np.float32)
    client.async_stream_infer("counting", count(10_000_000), request_id="many")
    client.async_stream_infer(
        "add_sub", [array_input("INPUT0", "FP32", row), array_input("INPUT1", "FP32", row)], request_id="one"
    )
    eventually(lambda: next_of(answers)[0].get_response().id == "one", "the other one has answered", 20)
    client.stop_stream(cancel_requests=True)
