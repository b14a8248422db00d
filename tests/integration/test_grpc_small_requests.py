"""Small requests over gRPC, of which one connection may have half a million: what they hold together is bounded."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests import models
from tests.gates import HELD, Gate
from tests.integration.grpc_doors import SERVICE, channel, port_of, tensor_request
from tests.integration.hostile import inflight_bytes
from tests.raw_http2 import END_HEADERS, Http2, Kind, frame, head, message
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer

pytestmark = pytest.mark.alone

BUDGET: Final = 64 << 20
STREAMS: Final = 8
REQUESTS: Final = 512
"""Of a stream: as many as may be open. All together would hold about 100 MiB"""


def asked(steps: int = 1) -> service_pb2.ModelInferRequest:
    """It holds little beside its name"""
    request = tensor_request("slow", "STEPS", "INT64", np.array([[steps]], np.int64))
    request.id = "x" * 8192
    return request


def test_small_requests_of_streams_count_together(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository, max_batch_size=1024)
    server = start_server(repository, f"--max-inflight-bytes={BUDGET}")
    request = asked()
    is_over = threading.Event()

    def requests() -> Iterator[service_pb2.ModelInferRequest]:
        for _ in range(REQUESTS):
            yield request
        is_over.wait(120)

    with channel(port_of(server), max_receive_message_length=-1) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        before = server.memory_kib()
        with Gate(repository) as gate:
            held_up = stub.ModelInfer.future(asked(HELD))
            gate.until_reached()
            calls = [stub.ModelStreamInfer(requests()) for _ in range(STREAMS)]
            eventually(lambda: inflight_bytes(server) > 0.99 * BUDGET, "they take all the room that there is")
            held = inflight_bytes(server)
            assert held <= BUDGET
            assert (server.memory_kib() - before) << 10 <= 1.5 * held
        is_over.set()
        # those for which there was no room have waited at their client
        assert [answer.error_message for call in calls for answer in call] == [""] * STREAMS * REQUESTS
        assert held_up.result().outputs
    eventually(lambda: inflight_bytes(server) == 0, "nothing waits")


def test_a_few_small_requests_have_room_where_large_ones_have_none(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository, max_batch_size=1024)
    server = start_server(repository, f"--max-inflight-bytes={BUDGET}")
    with channel(port_of(server)) as opened, channel(port_of(server)) as other:
        crowded, calm = (service_pb2_grpc.GRPCInferenceServiceStub(one) for one in (opened, other))
        with Gate(repository) as gate:
            waiting = [crowded.ModelInfer.future(asked(HELD))]
            gate.until_reached()
            waiting += [crowded.ModelInfer.future(asked()) for _ in range(1023)]
            eventually(lambda: inflight_bytes(server) > 16 << 20, "they count")
            others = [calm.ModelInfer.future(asked()) for _ in range(8)]
        assert all(answer.result().outputs for answer in waiting + others)
    eventually(lambda: inflight_bytes(server) == 0, "nothing waits")


METADATA: Final = [(f"x-{letter}", letter * 3900) for letter in "abc"]
"""As much as a call may have, nearly"""
PATIENT: Final = ("--http-body-timeout-secs=600",)
"""Calls that do not go on are held for as long as the test looks"""
CALLS: Final = 1000
"""Of a connection, nearly as many as may be open"""
HALF: Final = frame(Kind.DATA, 0, 1, message(b"\n" * 15_900, length=16_380))
WHOLE: Final = frame(Kind.DATA, 0, 1, message(b"\n" * 15_900))
REFLECTION: Final = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
# field 4 of the request: a symbol, which comes back
ECHOED: Final = frame(Kind.DATA, 0, 1, message(b"\x22\x80\x78" + b"s" * 15_360))


def of_stream(first: bytes, stream: int) -> bytes:
    """The same frame on another stream"""
    return first[:5] + stream.to_bytes(4) + first[9:]


def begin_calls(client: Http2, path: str, metadata: list[tuple[str, str]], body: bytes) -> None:
    for call in range(CALLS):
        stream = 2 * call + 1
        begun = frame(Kind.HEADERS, END_HEADERS, stream, head(path, metadata))
        client.send(begun, *([of_stream(body, stream)] if body else []))
        # what has come has been read: there is room for more
        assert call % 100 or client.is_answered()
    assert client.is_answered()


@pytest.mark.parametrize(
    ("path", "metadata", "body"),
    [
        (f"{SERVICE}/ServerLive", METADATA, b""),
        (f"{SERVICE}/ModelInfer", METADATA, b""),
        (f"{SERVICE}/RepositoryIndex", [], HALF),
        (f"{SERVICE}/RepositoryIndex", [], WHOLE),
        (REFLECTION, [], ECHOED),
    ],
    ids=["heads", "heads_that_are_forwarded", "halves", "wholes_without_an_end", "echoes"],
)
def test_what_calls_hold_that_never_end_counts(
    repository: Path,
    start_server: StartServer,
    path: str,
    metadata: list[tuple[str, str]],
    body: bytes,
) -> None:
    models.write_add_sub(repository)
    flags = (f"--max-inflight-bytes={BUDGET}", "--grpc-http2-max-ping-strikes=0", "--grpc-header-forward-pattern=^x-")
    server = start_server(repository, *flags, *PATIENT)
    before = server.memory_kib()
    with ExitStack() as stack:
        clients = [stack.enter_context(Http2(("127.0.0.1", port_of(server)), window=0)) for _ in range(4)]
        for client in clients:
            begin_calls(client, path, metadata, body)
        held = inflight_bytes(server)
        # answers that are there are given, and calls are refused behind them
        assert held <= 1.25 * BUDGET
        # beside what a connection may have uncounted
        assert (server.memory_kib() - before) << 10 <= 1.5 * held + len(clients) * (2 << 20)
    eventually(lambda: inflight_bytes(server) == 0, "nothing waits")


def test_memory_goes_back_when_much_traffic_is_over(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, "--grpc-http2-max-ping-strikes=0", *PATIENT)
    before = server.memory_kib()
    with ExitStack() as stack:
        for _ in range(8):
            client = stack.enter_context(Http2(("127.0.0.1", port_of(server))))
            begin_calls(client, f"{SERVICE}/RepositoryIndex", [], HALF)
        assert server.memory_kib() - before > 100 << 10
    eventually(lambda: server.memory_kib() - before < 40 << 10, "most of it is given back")


def test_metadata_that_go_with_each_request_count_with_each(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository, max_batch_size=1024)
    server = start_server(repository, f"--max-inflight-bytes={BUDGET}", "--grpc-header-forward-pattern=^x-")
    request = tensor_request("slow", "STEPS", "INT64", np.array([[1]], np.int64))
    is_over = threading.Event()

    def requests() -> Iterator[service_pb2.ModelInferRequest]:
        for _ in range(REQUESTS):
            yield request
        is_over.wait(120)

    with channel(port_of(server)) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        before = server.memory_kib()
        with Gate(repository) as gate:
            held_up = stub.ModelInfer.future(asked(HELD))
            gate.until_reached()
            calls = [stub.ModelStreamInfer(requests(), metadata=METADATA) for _ in range(STREAMS)]
            eventually(lambda: inflight_bytes(server) > 0.9 * BUDGET, "they take all the room that there is")
            assert (server.memory_kib() - before) << 10 <= 1.5 * inflight_bytes(server)
        is_over.set()
        assert [answer.error_message for call in calls for answer in call] == [""] * STREAMS * REQUESTS
        assert held_up.result().outputs
    eventually(lambda: inflight_bytes(server) == 0, "nothing waits")
