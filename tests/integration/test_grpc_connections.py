"""Connections of the gRPC door: how long they last, what they may hold, and how they end"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from tritonclient.grpc import service_pb2_grpc

from tests import models
from tests.gates import HELD, Gate
from tests.integration.grpc_doors import SERVICE, add_sub_request, channel, port_of, tensor_request
from tests.integration.occupied import pending
from tests.raw_http2 import FIRST_WINDOW, Code, Frame, Http2, Kind, frame, message
from tests.serving import DRAINING, ROOT, Server, labelled
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer

pytestmark = pytest.mark.clock

INFER: Final = f"{SERVICE}/ModelInfer"
STREAM: Final = f"{SERVICE}/ModelStreamInfer"
LIVE: Final = f"{SERVICE}/ServerLive"
OK, RESOURCE_EXHAUSTED, UNAVAILABLE = 0, 8, 14
PING: Final = frame(Kind.PING, payload=bytes(8))


def connect(server: Server, *, answers_pings: bool = True) -> Http2:
    return Http2(("127.0.0.1", port_of(server)), answers_pings=answers_pings)


def slow_request(steps: int = 0) -> bytes:
    return bytes(tensor_request("slow", "STEPS", "INT64", np.array([[steps]])).SerializeToString())


def is_ping(found: Frame) -> bool:
    return found.kind == Kind.PING and not found.flags


@pytest.fixture
def gated(repository: Path) -> Iterator[Gate]:
    models.write_gated(repository)
    with Gate(repository) as gate:
        yield gate


KEEPALIVE: Final = ("--grpc-keepalive-time=200", "--grpc-keepalive-timeout=400")


def test_a_client_that_says_nothing_is_asked_and_stays_if_it_answers(
    repository: Path, start_server: StartServer
) -> None:
    flags = (*KEEPALIVE, "--grpc-keepalive-permit-without-calls=true", "--grpc-http2-max-pings-without-data=0")
    server = start_server(repository, *flags)
    with connect(server) as client:
        for _ in range(5):
            assert client.until(is_ping) is not None
        client.ask(1, LIVE, b"")
        assert client.status(1) == OK
    with connect(server, answers_pings=False) as deaf:
        assert deaf.until(is_ping) is not None
        began = time.monotonic()
        assert not any(map(is_ping, deaf.rest()))
        assert 0.2 < time.monotonic() - began < 20


def test_a_client_with_calls_is_asked_twice_between_two_answers(
    gated: Gate, repository: Path, start_server: StartServer
) -> None:
    with connect(start_server(repository, *KEEPALIVE)) as client:
        client.ask(1, INFER, slow_request(HELD))
        gated.until_reached()
        assert [client.until(is_ping) is not None for _ in range(2)] == [True, True]
        client.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            client.next()
        client.socket.settimeout(30)
        gated.let_through()
        assert client.status(1) == OK


def test_nobody_is_asked_without_calls_unless_that_is_permitted(
    gated: Gate, repository: Path, start_server: StartServer
) -> None:
    with connect(start_server(repository, *KEEPALIVE), answers_pings=False) as client:
        client.ask(1, LIVE, b"")
        assert client.status(1) == OK
        client.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            client.next()
        client.socket.settimeout(30)
        client.ask(3, LIVE, b"")
        assert client.status(3) == OK
    del gated


def ping_again(client: Http2) -> None:
    client.send(PING)
    found = client.until_kind(Kind.PING)
    assert found is not None
    assert found.flags


def test_a_third_ping_that_comes_too_early_ends_the_connection(repository: Path, start_server: StartServer) -> None:
    server = start_server(repository)
    with connect(server) as client, connect(server) as other:
        for _ in range(3):
            ping_again(client)
        client.send(PING)
        goaways = [found for found in client.rest() if found.kind == Kind.GOAWAY]
        assert {found.code for found in goaways} == {Code.ENHANCE_YOUR_CALM}
        assert goaways[-1].payload[8:] == b"too_many_pings"
        other.ask(1, LIVE, b"")
        assert other.status(1) == OK


def test_an_answer_forgives_the_pings_before_it(repository: Path, start_server: StartServer) -> None:
    with connect(start_server(repository)) as client:
        for stream in range(1, 41, 2):
            for _ in range(3):
                ping_again(client)
            client.ask(stream, LIVE, b"")
            assert client.status(stream) == OK


def test_a_client_may_ping_again_and_again_while_a_large_answer_comes(
    repository: Path, start_server: StartServer
) -> None:
    models.write_identities(repository)
    server = start_server(repository)
    request = tensor_request("identity_fp32", "INPUT0", "FP32", np.zeros((1, 1 << 17), np.float32))
    with Http2(("127.0.0.1", port_of(server)), window=FIRST_WINDOW) as client:
        client.ask(1, INFER, request.SerializeToString())
        pings, is_answered = 0, True
        while (found := client.next()) is not None and not (found.stream == 1 and found.kind == Kind.HEADERS and pings):
            is_answered |= found.kind == Kind.PING
            if found.kind == Kind.DATA and found.payload:
                for stream in (0, 1):
                    client.grant(stream, len(found.payload))
                if is_answered:
                    # as grpc does, to learn how much is under way
                    client.send(PING)
                    pings, is_answered = pings + 1, False
        assert found is not None, "the connection ended"
        assert int(found.fields["grpc-status"]) == OK
        assert pings > 3


def test_pings_are_in_order_where_the_operator_says_so(repository: Path, start_server: StartServer) -> None:
    flags = ["--grpc-keepalive-permit-without-calls=true", "--grpc-http2-min-recv-ping-interval-without-data=0"]
    for given in (flags, ["--grpc-http2-max-ping-strikes=0"]):
        with connect(start_server(repository, *given)) as client:
            for _ in range(50):
                ping_again(client)


CHATTY: Final = """
import sys, time, grpc
options = [("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 5000),
           ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0),
           ("grpc.http2.min_time_between_pings_ms", 1000)]
with grpc.insecure_channel(sys.argv[1], options=options) as channel:
    call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(iter(lambda: time.sleep(30), 0))
    try:
        next(call)
    except grpc.RpcError as error:
        print(error.code(), error.details())
"""


def test_a_real_client_that_asks_too_often_is_told_so(repository: Path, start_server: StartServer) -> None:
    address = f"127.0.0.1:{port_of(start_server(repository))}"
    command = [sys.executable, "-c", CHATTY, address]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "StatusCode.UNAVAILABLE" in told.stdout
    assert "too_many_pings" in told.stdout + told.stderr


def test_a_connection_that_is_old_is_told_to_leave_and_ends_after_its_grace(
    gated: Gate, repository: Path, start_server: StartServer
) -> None:
    server = start_server(repository, "--grpc-max-connection-age=300", "--grpc-max-connection-age-grace=300")
    with connect(server) as idle, connect(server) as busy:
        busy.ask(1, INFER, slow_request(HELD))
        gated.until_reached()
        assert {found.code for found in idle.rest() if found.kind == Kind.GOAWAY} == {Code.NO_ERROR}
        found = busy.rest()
        assert {one.code for one in found if one.kind == Kind.GOAWAY} == {Code.NO_ERROR}
        assert not any(one.stream == 1 and one.kind == Kind.HEADERS for one in found)
        gated.let_through()


def test_without_a_grace_a_call_has_its_time(gated: Gate, repository: Path, start_server: StartServer) -> None:
    with connect(start_server(repository, "--grpc-max-connection-age=300")) as client:
        client.ask(1, INFER, slow_request(HELD))
        gated.until_reached()
        goaway = client.until_kind(Kind.GOAWAY)
        assert goaway is not None
        assert goaway.code == Code.NO_ERROR
        time.sleep(1)
        gated.let_through()
        assert client.status(1) == OK
        assert {found.kind for found in client.rest()} <= {Kind.GOAWAY, Kind.PING, Kind.SETTINGS}


def test_a_client_goes_on_over_connections_that_grow_old(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    with channel(port_of(start_server(repository, "--grpc-max-connection-age=100"))) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        ending = time.monotonic() + 3
        while time.monotonic() < ending:
            stub.ModelInfer(add_sub_request(), timeout=20)


def test_a_drain_answers_what_it_has_accepted_and_says_goodbye(
    gated: Gate, repository: Path, start_server: StartServer
) -> None:
    server = start_server(repository)
    with connect(server) as client, connect(server) as idle:
        client.ask(1, INFER, slow_request(HELD))
        gated.until_reached()
        for stream in range(3, 41, 2):
            client.ask(stream, INFER, slow_request())
        client.begin(41, STREAM)
        client.data(41, message(slow_request()) * 5, end=False)
        eventually(lambda: pending(server) == 24, "all wait")
        server.terminate()
        goaway = client.until_kind(Kind.GOAWAY)
        assert goaway is not None
        assert goaway.code == Code.NO_ERROR
        assert {found.code for found in idle.rest() if found.kind == Kind.GOAWAY} == {Code.NO_ERROR}
        gated.let_through()
        found = client.rest()
        endings = {one.stream: one.fields["grpc-status"] for one in found if one.kind == Kind.HEADERS and one.flags & 1}
        assert endings == {**{stream: str(OK) for stream in range(1, 41, 2)}, 41: str(UNAVAILABLE)}
        body = b"".join(one.payload for one in found if one.stream == 41 and one.kind == Kind.DATA)
        assert body.count(b"slow") == 5
    assert server.wait() == 0


def test_a_real_client_loses_no_call_to_a_drain(gated: Gate, repository: Path, start_server: StartServer) -> None:
    server = start_server(repository)
    held = tensor_request("slow", "STEPS", "INT64", np.array([[HELD]]))
    plain = tensor_request("slow", "STEPS", "INT64", np.array([[0]]))
    with channel(port_of(server)) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        calls = [stub.ModelInfer.future(held)]
        gated.until_reached()
        calls += [stub.ModelInfer.future(plain) for _ in range(50)]
        eventually(lambda: pending(server) == 50, "all wait")
        ending = threading.Thread(target=server.stop)
        ending.start()
        server.log.wait_for(DRAINING, 20)
        gated.let_through()
        assert [len(call.result(20).raw_output_contents) for call in calls] == [1] * 51
        ending.join(30)
    assert server.process.returncode == 0


def test_calls_that_begin_while_the_server_ends_do_not_keep_it_up(repository: Path, start_server: StartServer) -> None:
    server = start_server(repository, "--http-body-timeout-secs=1", "--exit-timeout-secs=15")
    half = frame(Kind.DATA, 0, 1, message(b"", length=1000) + bytes(500))
    ended = threading.Event()

    def come_again() -> None:
        with ExitStack() as opened:
            while not ended.wait(0.2):
                with suppress(OSError, AssertionError):
                    client = opened.enter_context(connect(server))
                    client.begin(1, INFER)
                    client.send(half)

    with ThreadPoolExecutor(3) as clients:
        try:
            for _ in range(3):
                clients.submit(come_again)
            eventually(lambda: labelled(server.metrics(), "kushi_open_connections", door="grpc") > 3, "some have come")
            server.terminate()
            assert server.wait() == 0
        finally:
            ended.set()
