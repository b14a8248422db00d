"""Calls whose time is over, and calls that are given up: what they held is free for others"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from runners import Engine
from tests import models
from tests.gates import HELD, Gate
from tests.integration.grpc_doors import SERVICE, channel, ended, tensor_request
from tests.integration.slow_engine import Slow
from tests.raw_http2 import Code, Http2, Kind, frame, message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INFER: Final = f"{SERVICE}/ModelInfer"
STREAM: Final = f"{SERVICE}/ModelStreamInfer"
CANCEL: Final = Code.CANCEL.to_bytes(4)
OK, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE = 0, 4, 13, 14


def request(steps: int = 0) -> service_pb2.ModelInferRequest:
    return tensor_request("slow", "STEPS", "INT64", np.array([[steps]]))


WHOLE: Final = request().SerializeToString()


@contextmanager
def occupied(slow: Slow) -> Iterator[int]:
    """While the model executes for somebody else; the port of the door"""
    port = slow.engine.serve_grpc(port=0)
    with Http2(("127.0.0.1", port)) as other:
        other.ask(1, INFER, request(HELD).SerializeToString())
        slow.gate.until_reached()
        yield port
        slow.go_on()
        assert other.status(1) == OK


@pytest.fixture
def slow(repository: Path) -> Iterator[Slow]:
    """With room for many in its queue"""
    models.write_gated(repository)
    with Engine(repository) as engine, Gate(repository) as gate:
        yield Slow(engine, ("127.0.0.1", engine.serve_metrics(port=0)), gate)


@pytest.fixture
def port(slow: Slow) -> Iterator[int]:
    with occupied(slow) as port:
        yield port
        slow.until_waiting(0)


@pytest.fixture
def client(port: int) -> Iterator[Http2]:
    with Http2(("127.0.0.1", port)) as opened:
        yield opened


@pytest.mark.parametrize("timeout", ["100m", "99999u", "0n", "1n"])
def test_a_request_that_waits_ends_with_its_deadline(slow: Slow, client: Http2, timeout: str) -> None:
    client.ask(1, INFER, WHOLE, [("grpc-timeout", timeout)])
    ending = client.ending(1)
    assert isinstance(ending, dict)
    assert (ending["grpc-status"], ending["grpc-message"]) == ("4", "Deadline Exceeded")
    slow.until_waiting(0)


def test_a_request_that_executes_ends_with_its_deadline(repository: Path) -> None:
    models.write_gated(repository)
    with (
        Engine(repository) as engine,
        Gate(repository) as gate,
        Http2(("127.0.0.1", engine.serve_grpc(port=0))) as client,
    ):
        # on a busy machine its time may be over before it executes: then it is asked again, with more of it
        for stream, patience in ((1, "300m"), (3, "3S"), (5, "20S")):
            client.ask(stream, INFER, request(HELD).SerializeToString(), [("grpc-timeout", patience)])
            assert client.status(stream) == DEADLINE_EXCEEDED
            if gate.is_reached():
                break
        else:
            pytest.fail("it has never executed")
        gate.let_through()
        client.ask(7, INFER, WHOLE)
        assert client.status(7) == OK


def test_a_message_that_does_not_come_in_its_time_ends_its_call(client: Http2) -> None:
    for stream, sent in ((1, b""), (3, message(WHOLE)[:3]), (5, message(WHOLE)[:-1])):
        client.begin(stream, INFER, [("grpc-timeout", "100m")])
        if sent:
            client.data(stream, sent, end=False)
        assert client.status(stream) == DEADLINE_EXCEEDED


def test_a_request_of_a_stream_has_the_deadline_of_its_call(slow: Slow, client: Http2) -> None:
    client.begin(1, STREAM, [("grpc-timeout", "200m")])
    client.data(1, message(WHOLE) * 3, end=False)
    slow.until_waiting(3)
    assert client.status(1) == DEADLINE_EXCEEDED
    slow.until_waiting(0)


def test_a_stream_that_nothing_is_asked_of_ends_with_its_deadline(client: Http2) -> None:
    paths = [STREAM, "/grpc.health.v1.Health/Watch", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"]
    for stream, path in zip((1, 3, 5), paths, strict=True):
        client.begin(stream, path, [("grpc-timeout", "100m")])
        if path.endswith("Watch"):
            client.data(stream, message(b""))
        assert client.status(stream) == DEADLINE_EXCEEDED, path


@pytest.mark.parametrize("timeout", ["", "5", "S", "-1S", "1.5S", "123456789S", "1s", "soon"])
def test_a_time_that_is_none_is_refused(client: Http2, timeout: str) -> None:
    client.ask(1, INFER, WHOLE, [("grpc-timeout", timeout)])
    assert client.status(1) == INTERNAL


def test_a_client_hears_its_own_deadline(slow: Slow, port: int) -> None:
    with channel(port) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        code, _ = ended(lambda: stub.ModelInfer(request(), timeout=0.2))
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED
        slow.until_waiting(0)


def test_a_call_that_is_reset_frees_its_places(slow: Slow, client: Http2) -> None:
    for stream in (1, 3, 5):
        client.ask(stream, INFER, WHOLE)
    client.begin(7, STREAM)
    client.data(7, message(WHOLE) * 4, end=False)
    slow.until_waiting(7)
    client.send(frame(Kind.RST_STREAM, stream=3, payload=CANCEL))
    slow.until_waiting(6)
    client.send(frame(Kind.RST_STREAM, stream=7, payload=CANCEL))
    slow.until_waiting(2)
    assert client.is_answered()


def test_a_connection_that_is_lost_frees_all_places(slow: Slow, port: int) -> None:
    with Http2(("127.0.0.1", port)) as client:
        for stream in (1, 3, 5):
            client.ask(stream, INFER, WHOLE)
        client.begin(7, STREAM)
        client.data(7, message(WHOLE) * 4, end=False)
        slow.until_waiting(7)
    slow.until_waiting(0)


def test_cancels_of_clients_free_places(slow: Slow, port: int) -> None:
    with channel(port) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        waiting = [stub.ModelInfer.future(request()) for _ in range(3)]
        stream = stub.ModelStreamInfer(iter([request()] * 4))
        slow.until_waiting(7)
        for call in waiting:
            call.cancel()
        slow.until_waiting(4)
        stream.cancel()
        slow.until_waiting(0)
        assert ended(lambda: next(stream))[0] == grpc.StatusCode.CANCELLED


def test_a_full_queue_refuses_at_once(repository: Path) -> None:
    models.write_gated(repository, extra=models.queue_policy("max_queue_size: 2"))
    with Engine(repository) as engine, Gate(repository) as gate:
        slow = Slow(engine, ("127.0.0.1", engine.serve_metrics(port=0)), gate)
        with ExitStack() as stack:
            port = stack.enter_context(occupied(slow))
            client = stack.enter_context(Http2(("127.0.0.1", port)))
            for stream in (1, 3):
                client.ask(stream, INFER, WHOLE)
            slow.until_waiting(2)
            client.ask(5, INFER, WHOLE)
            ending = client.ending(5)
            assert isinstance(ending, dict)
            assert int(ending["grpc-status"]) == UNAVAILABLE
            assert ending["grpc-message"].endswith("Exceeds maximum queue size")
            client.send(frame(Kind.RST_STREAM, stream=1, payload=CANCEL))
            slow.until_waiting(1)
            client.ask(7, INFER, WHOLE)
            slow.until_waiting(2)
