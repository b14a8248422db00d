"""What a call and a connection of the gRPC door may have at most, and readers that are slow"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2_grpc

from tests import models
from tests.gates import HELD, Gate
from tests.integration.grpc_doors import SERVICE, add_sub_request, channel, ended, port_of, tensor_request
from tests.integration.hostile import all_is_well, inflight_bytes
from tests.integration.occupied import until_pending
from tests.raw_http2 import END_STREAM, Code, Frame, Http2, Kind, Setting, frame, message
from tests.serving import Server
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer

INFER: Final = f"{SERVICE}/ModelInfer"
STREAM: Final = f"{SERVICE}/ModelStreamInfer"
LIVE: Final = f"{SERVICE}/ServerLive"
OK, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL = 0, 4, 8, 13
MOST_CALLS: Final = 1024
MOST_REQUESTS: Final = 512
NO_ROOM: Final = (
    "request of 67108865 bytes exceeds the maximum of 67108864 bytes for all requests in flight. Use "
    "--max-inflight-bytes to increase the limit."
)


@pytest.fixture(scope="module")
def hurried(standard_repository: Path) -> Iterator[Server]:
    """A server that has little patience, and little memory"""
    server = Server.start(standard_repository, "--http-body-timeout-secs=2", f"--max-inflight-bytes={64 << 20}")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def bounded(hurried: Server) -> Iterator[Server]:
    yield from all_is_well(hurried)


@pytest.fixture
def client(bounded: Server) -> Iterator[Http2]:
    with Http2(("127.0.0.1", port_of(bounded))) as opened:
        yield opened


def told(client: Http2, stream: int) -> tuple[int, str]:
    ending = client.ending(stream)
    assert isinstance(ending, dict), ending
    return int(ending["grpc-status"]), ending.get("grpc-message", "")


def body_of(client: Http2, stream: int, *, grants: bool = False) -> tuple[bytes, Frame]:
    """All that a call is answered with, and its trailers"""
    parts = []
    while (found := client.until(lambda one: one.stream == stream)) and not found.flags & END_STREAM:
        if found.kind == Kind.DATA:
            parts.append(found.payload)
            if grants:
                client.grant(stream, len(found.payload))
    assert found is not None
    return b"".join(parts), found


def messages(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        length = int.from_bytes(body[at + 1 : at + 5])
        yield body[at + 5 : at + 5 + length]
        at += 5 + length
    assert at == len(body)


@pytest.mark.alone
@pytest.mark.parametrize("path", [INFER, STREAM])
def test_a_message_is_refused_by_its_length_alone(client: Http2, path: str) -> None:
    for stream, (length, text) in enumerate(
        [
            (2**31, "Received message larger than max (2147483648 vs. 2147483647)"),
            (2**32 - 1, "Received message larger than max (4294967295 vs. 2147483647)"),
            (
                (64 << 20) + 1,
                NO_ROOM,
            ),
        ]
    ):
        client.begin(2 * stream + 1, path)
        client.data(2 * stream + 1, message(b"", length=length), end=False)
        assert told(client, 2 * stream + 1) == (RESOURCE_EXHAUSTED, text)


@pytest.mark.alone
def test_one_that_is_no_inference_is_refused_sooner(client: Http2) -> None:
    client.begin(1, LIVE)
    client.data(1, message(b"", length=(64 << 10) + 1), end=False)
    assert told(client, 1) == (RESOURCE_EXHAUSTED, "Received message larger than max (65537 vs. 65536)")


@pytest.mark.alone
def test_messages_that_others_leave_no_room_for_are_refused_for_now(bounded: Server) -> None:
    asked = tensor_request("identity_fp32", "INPUT0", "FP32", np.zeros((1, 10 << 20), np.float32))
    with channel(port_of(bounded), max_receive_message_length=-1) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        calls = [stub.ModelInfer.future(asked) for _ in range(6)]
        codes = {ended(call.result)[0] for call in calls}
        assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
        stub.ModelInfer(asked)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("sent", "end", "code"),
    [
        (b"", True, INTERNAL),
        (message(b"")[:4], True, INTERNAL),
        (message(b"12345")[:-1], True, INTERNAL),
        (message(b"") * 2, True, INTERNAL),
        (message(b"")[:3], False, DEADLINE_EXCEEDED),
        (message(bytes(100))[:50], False, DEADLINE_EXCEEDED),
    ],
    ids=["no message", "half a head", "half a message", "two messages", "a head that stops", "a message that stops"],
)
@pytest.mark.parametrize("path", [INFER, LIVE])
def test_a_call_has_one_whole_message(client: Http2, path: str, sent: bytes, end: bool, code: int) -> None:
    client.begin(1, path)
    client.data(1, sent, end=end)
    assert told(client, 1)[0] == code


@pytest.mark.alone
def test_metadata_have_a_limit_of_their_own(bounded: Server, client: Http2) -> None:
    client.ask(1, LIVE, b"", [("x-large", "x" * 15_000)])
    assert client.status(1) == OK
    client.begin(3, LIVE, [(f"x-{number}", "x" * 100) for number in range(150)], end=True)
    refused = client.until(lambda found: found.stream == 3)
    assert refused is not None
    assert refused.kind == Kind.RST_STREAM or refused.fields[":status"] == "431"
    client.ask(5, LIVE, b"")
    assert client.status(5) == OK
    with channel(port_of(bounded)) as opened:
        ask = opened.unary_unary(LIVE)
        code, _ = ended(lambda: ask(b"", metadata=[("x-large", "x" * 20_000)], timeout=20))
        assert code != grpc.StatusCode.OK
        assert ended(lambda: ask(b"", timeout=20))[0] == grpc.StatusCode.OK


@pytest.mark.alone
def test_calls_beyond_those_that_may_be_open_are_refused_and_no_other(bounded: Server, client: Http2) -> None:
    assert client.given[Setting.MAX_CONCURRENT_STREAMS] == MOST_CALLS
    for number in range(MOST_CALLS):
        client.begin(2 * number + 1, LIVE)
    beyond = 2 * MOST_CALLS + 1
    client.begin(beyond, LIVE)
    assert client.ending(beyond) == Code.REFUSED_STREAM
    for number in range(MOST_CALLS):
        client.data(2 * number + 1, message(b""))
    endings = {found.stream for _ in range(MOST_CALLS) if (found := client.until(lambda one: bool(one.flags & 1)))}
    assert endings == {2 * number + 1 for number in range(MOST_CALLS)}
    client.ask(beyond + 2, LIVE, b"")
    assert client.status(beyond + 2) == OK
    assert bounded.is_ready()


@pytest.mark.alone
def test_more_calls_than_that_wait_at_a_real_client(bounded: Server) -> None:
    with channel(port_of(bounded)) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        calls = [stub.ModelInfer.future(add_sub_request(number)) for number in range(3000)]
        for number, call in enumerate(calls):
            assert np.frombuffer(call.result(60).raw_output_contents[0], np.int32)[0] == number + 1


# more than a thousand runs of a model whose thread stands behind all others of a busy machine
@pytest.mark.timeout(900)
def test_a_stream_has_so_many_open_requests_and_then_goes_on(repository: Path, start_server: StartServer) -> None:
    models.write_gated(repository)
    models.write_add_sub(repository)
    server = start_server(repository)
    asked = tensor_request("slow", "STEPS", "INT64", np.array([[0]])).SerializeToString()
    held = tensor_request("slow", "STEPS", "INT64", np.array([[HELD]])).SerializeToString()
    count = MOST_REQUESTS + 40
    with Gate(repository) as gate, Http2(("127.0.0.1", port_of(server))) as client:
        client.begin(1, STREAM)
        client.data(1, message(held), end=False)
        gate.until_reached()
        client.data(1, message(asked) * (count - 1))
        until_pending(server, MOST_REQUESTS - 1)
        client.ask(3, INFER, add_sub_request().SerializeToString())
        assert client.status(3) == OK
        until_pending(server, MOST_REQUESTS - 1)
        gate.let_through()
        answers, found = body_of(client, 1)
        assert found.fields["grpc-status"] == str(OK)
        assert len(list(messages(answers))) == count


@pytest.mark.alone
def test_an_answer_that_nobody_reads_is_given_up(bounded: Server) -> None:
    with Http2(("127.0.0.1", port_of(bounded)), window=0) as deaf:
        deaf.ask(1, LIVE, b"")
        deaf.ask(3, INFER, add_sub_request().SerializeToString())
        rows = tensor_request("identity_fp32", "INPUT0", "FP32", np.zeros((1, 100_000), np.float32))
        deaf.ask(5, INFER, rows.SerializeToString())
        eventually(lambda: inflight_bytes(bounded) >= 400_000, "an answer waits")
        assert deaf.ending(5) == Code.CANCEL
        eventually(lambda: inflight_bytes(bounded) == 0, "nothing waits")


@pytest.mark.alone
def test_a_reader_that_is_slow_gets_all_of_its_answer(bounded: Server) -> None:
    rows = np.random.default_rng(5).random((1, 250_000), np.float32)
    asked = tensor_request("identity_fp32", "INPUT0", "FP32", rows).SerializeToString()
    with Http2(("127.0.0.1", port_of(bounded)), window=1000) as slow:
        slow.begin(1, INFER)
        slow.data(1, message(asked))
        slow.grant(0, 1 << 30)
        body, found = body_of(slow, 1, grants=True)
        assert found.fields["grpc-status"] == str(OK)
        assert body.endswith(rows.tobytes())


@pytest.mark.alone
def test_a_reset_while_an_answer_is_written_leaves_nothing(bounded: Server) -> None:
    asked = tensor_request("identity_fp32", "INPUT0", "FP32", np.zeros((1, 200_000), np.float32)).SerializeToString()
    for _ in range(5):
        with Http2(("127.0.0.1", port_of(bounded)), window=1000) as client:
            client.ask(1, INFER, asked)
            assert client.until(lambda one: one.stream == 1 and one.kind == Kind.DATA)
            client.send(frame(Kind.RST_STREAM, stream=1, payload=Code.CANCEL.to_bytes(4)))
            eventually(lambda: inflight_bytes(bounded) == 0, "nothing waits")
            assert client.is_answered()
