"""Clients of the gRPC door that break its rules on purpose: nothing is left of them, and nobody else waits"""

from __future__ import annotations

import itertools
import random
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from tests.hpack import block
from tests.integration.grpc_doors import SERVICE, add_sub_request, port_of, tensor_request
from tests.integration.hostile import SPARE_KIB, all_is_well, inflight_bytes
from tests.raw_http2 import END_HEADERS, END_STREAM, Code, Http2, Kind, Setting, frame, head, message, settings
from tests.serving import Server
from tests.waiting import eventually, settles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INFER: Final = f"{SERVICE}/ModelInfer"
STREAM: Final = f"{SERVICE}/ModelStreamInfer"
LIVE: Final = f"{SERVICE}/ServerLive"
WATCH: Final = "/grpc.health.v1.Health/Watch"
REFLECTION: Final = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
OK: Final = 0
NUMBERS: Final = np.zeros(20_000, np.uint8).reshape(1, -1)
WHOLE: Final = add_sub_request().SerializeToString()


@pytest.fixture(scope="module")
def shared(standard_repository: Path) -> Iterator[Server]:
    """A server that has little patience and takes pings as they come: they are a matter of another test"""
    server = Server.start(standard_repository, "--http-body-timeout-secs=2", "--grpc-http2-max-ping-strikes=0")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    for running in all_is_well(shared):
        with Http2(("127.0.0.1", port_of(running))) as first:
            first.ask(1, INFER, WHOLE)
            assert first.status(1) == OK
        yield running
        with Http2(("127.0.0.1", port_of(running))) as last:
            last.ask(1, INFER, WHOLE)
            assert last.status(1) == OK


@pytest.fixture
def client(server: Server) -> Iterator[Http2]:
    with Http2(("127.0.0.1", port_of(server))) as opened:
        yield opened


def ends(client: Http2, data: bytes) -> bool:
    """Whether the server has had enough before all of it was sent; then what it says is why"""
    client.socket.settimeout(30)
    with suppress(ConnectionError):
        for at in range(0, len(data), 1 << 16):
            client.send(data[at : at + (1 << 16)])
        client.send(frame(Kind.PING, payload=b"to prove"))
    # a reset may overtake what the server has said
    for found in iter(client.next, None):
        if found.kind == Kind.GOAWAY:
            assert found.code in {Code.ENHANCE_YOUR_CALM, Code.PROTOCOL_ERROR}, found
        if found.payload == b"to prove":
            return False
    return True


def resets(count: int, first: int = 1) -> bytes:
    """Calls that are given up as they begin"""
    cancel = Code.CANCEL.to_bytes(4)
    return b"".join(
        frame(Kind.HEADERS, END_HEADERS, stream, head(INFER)) + frame(Kind.RST_STREAM, 0, stream, cancel)
        for stream in range(first, first + 2 * count, 2)
    )


@pytest.mark.alone
def test_calls_that_are_given_up_at_once_end_the_connection(client: Http2) -> None:
    assert ends(client, resets(20_000))


@pytest.mark.alone
def test_calls_that_are_given_up_one_after_another_are_let_be(client: Http2) -> None:
    for stream in range(1, 4001, 2):
        client.ask(stream, INFER, WHOLE)
        client.send(frame(Kind.RST_STREAM, stream=stream, payload=Code.CANCEL.to_bytes(4)))
        if stream % 64 == 1:
            assert client.is_answered()
    client.ask(4001, INFER, WHOLE)
    assert client.status(4001) == OK


@pytest.mark.alone
def test_a_head_that_never_ends_ends_the_connection(server: Server, client: Http2) -> None:
    before = server.memory_kib()
    piece = frame(Kind.CONTINUATION, 0, 1, block([("x", "x" * 16_000)]))
    assert ends(client, frame(Kind.HEADERS, 0, 1, head(INFER)) + piece * 2000)
    assert server.memory_kib() - before < SPARE_KIB


@pytest.mark.alone
def test_a_head_of_empty_pieces_ends_the_connection(client: Http2) -> None:
    begun = frame(Kind.HEADERS, 0, 1, head(INFER))
    assert ends(client, begun + frame(Kind.CONTINUATION, 0, 1) * 100_000)


@pytest.mark.alone
def test_a_field_that_is_repeated_by_its_index_has_a_limit(server: Server, client: Http2) -> None:
    kept = b"\x40" + block([("x-large", "x" * 3000)])[1:]
    before = server.memory_kib()
    for stream in range(1, 41, 2):
        client.send(frame(Kind.HEADERS, 5, stream, head(LIVE) + kept + b"\xbe" * 12_000))
        found = client.until_kind(Kind.GOAWAY, Kind.RST_STREAM, Kind.HEADERS)
        if found is None or found.kind == Kind.GOAWAY:
            break
        assert found.kind == Kind.RST_STREAM or found.fields[":status"] == "431"
    assert server.memory_kib() - before < SPARE_KIB


FLOODS: Final = {
    "pings": frame(Kind.PING, payload=bytes(8)),
    "settings": settings({Setting.INITIAL_WINDOW_SIZE: 70_000}),
    "empty settings": settings({}),
    "priorities": frame(Kind.PRIORITY, 0, 5, struct.pack(">IB", 3, 1)),
    "unknown frames": frame(0x77, 0, 0, b"x"),
}


@pytest.mark.alone
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_what_belongs_to_no_call_ends_the_connection(client: Http2, name: str) -> None:
    assert ends(client, FLOODS[name] * 100_000)


@pytest.mark.alone
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_whose_answers_nobody_reads_holds_no_memory(server: Server, client: Http2, name: str) -> None:
    before = server.memory_kib()
    client.socket.settimeout(2)
    with suppress(OSError):
        for _ in range(100):
            client.send(FLOODS[name] * 5000)
    assert server.memory_kib() - before < 32 << 10


def windows(count: int) -> bytes:
    """Settings that change the room of all calls, to and fro"""
    return b"".join(settings({Setting.INITIAL_WINDOW_SIZE: 70_000 + place % 2}) for place in range(count))


@pytest.mark.alone
def test_settings_for_many_open_calls_are_few(client: Http2) -> None:
    for stream in range(1, 1000, 2):
        client.begin(stream, INFER)
    client.send(windows(50))
    client.ask(1001, LIVE, b"")
    assert client.status(1001) == OK
    # which HTTP/2 would look at 500 calls for, each time, while others wait
    assert ends(client, windows(5000))


@pytest.mark.alone
def test_settings_of_a_client_with_one_call_are_let_be(client: Http2) -> None:
    client.begin(1, STREAM)
    client.data(1, message(WHOLE), end=False)
    client.send(windows(5000))
    client.data(1, b"")
    assert client.status(1) == OK


@pytest.mark.alone
def test_windows_that_grow_by_one_are_let_be_for_a_while(client: Http2) -> None:
    client.begin(1, STREAM)
    client.data(1, message(WHOLE), end=False)
    client.send(frame(Kind.SETTINGS, payload=struct.pack(">HI", Setting.INITIAL_WINDOW_SIZE, 1000)))
    grow = frame(Kind.WINDOW_UPDATE, 0, 1, (1).to_bytes(4))
    client.send(grow * 9_000)
    client.data(1, b"")
    assert client.status(1) == OK
    # for which nothing has come meanwhile
    assert ends(client, grow * 20_000)


@pytest.mark.alone
def test_an_upload_in_single_bytes_is_read_or_refused(server: Server, client: Http2) -> None:
    asked = message(tensor_request("identity_uint8", "INPUT0", "UINT8", NUMBERS).SerializeToString())
    before = server.memory_kib()
    client.begin(1, INFER)
    ends(client, b"".join(frame(Kind.DATA, 0, 1, bytes([byte])) for byte in asked))
    assert server.memory_kib() - before < SPARE_KIB


@pytest.mark.alone
def test_single_bytes_behind_an_answer_that_nobody_reads_hold_little(server: Server) -> None:
    before = server.memory_kib()
    with Http2(("127.0.0.1", port_of(server)), window=0) as deaf:
        deaf.begin(1, STREAM)
        deaf.data(1, message(WHOLE), end=False)
        ends(deaf, frame(Kind.DATA, 0, 1, b"\0") * 500_000)
        assert server.memory_kib() - before < SPARE_KIB


@pytest.mark.alone
@pytest.mark.parametrize("size", [1, 15_000, 20_000])
def test_two_hundred_answers_that_nobody_reads_are_given_up(server: Server, size: int) -> None:
    with Http2(("127.0.0.1", port_of(server)), window=0) as deaf:
        numbers = np.zeros((1, size), np.uint8)
        asked = tensor_request("identity_uint8", "INPUT0", "UINT8", numbers).SerializeToString()
        for stream in range(1, 401, 2):
            deaf.ask(stream, INFER, asked)
        given_up = [found for _ in range(200) if (found := deaf.until_kind(Kind.RST_STREAM))]
        assert {found.stream for found in given_up} == set(range(1, 401, 2))
        assert {found.code for found in given_up} == {Code.CANCEL}
        eventually(lambda: inflight_bytes(server) == 0, "nothing waits")


@pytest.mark.alone
def test_ten_thousand_calls_that_are_never_sent_hold_little(server: Server) -> None:
    before = server.memory_kib()
    clients = [Http2(("127.0.0.1", port_of(server))) for _ in range(10)]
    try:
        for number, opened in enumerate(clients):
            path = (INFER, STREAM, LIVE, WATCH, REFLECTION)[number % 5]
            opened.send(*(frame(Kind.HEADERS, END_HEADERS, stream, head(path)) for stream in range(1, 2049, 2)))
            assert opened.is_answered()
        assert server.memory_kib() - before < SPARE_KIB
        # the others have their time of a message, and end with it
        assert clients[0].status(1) == 4
    finally:
        for opened in clients:
            opened.socket.close()


@pytest.mark.alone
@pytest.mark.parametrize(
    ("method", "content_type", "text"),
    [
        ("GET", "application/grpc", "the method is GET, a call is a POST"),
        ("PUT", "application/grpc", "the method is PUT, a call is a POST"),
        ("POST", "application/grpcfoo", "the content type is not that of gRPC"),
        ("POST", "application/json", "the content type is not that of gRPC"),
        ("POST", "application/grpc+proto", None),
        ("POST", "application/grpc;charset=utf-8", None),
    ],
)
def test_a_call_is_a_post_of_grpc(client: Http2, method: str, content_type: str, text: str | None) -> None:
    begun = head(LIVE, method=method, content_type=content_type)
    client.send(frame(Kind.HEADERS, END_HEADERS, 1, begun), frame(Kind.DATA, END_STREAM, 1, message(b"")))
    ending = client.ending(1)
    assert isinstance(ending, dict)
    assert (ending["grpc-status"], ending.get("grpc-message")) == ("0" if text is None else "13", text)


@pytest.mark.alone
def test_one_connection_has_a_part_of_the_watches(server: Server) -> None:
    with Http2(("127.0.0.1", port_of(server))) as greedy:
        for number in range(1, 512, 2):
            greedy.ask(number, WATCH, b"")
            assert greedy.until_kind(Kind.DATA)
        greedy.ask(513, WATCH, b"")
        assert greedy.status(513) == 8
        with Http2(("127.0.0.1", port_of(server))) as another:
            another.ask(1, WATCH, b"")
            assert another.until_kind(Kind.DATA)


@pytest.mark.alone
def test_watches_beyond_the_bound_are_refused_and_the_others_go_on(server: Server) -> None:
    address = ("127.0.0.1", port_of(server))
    before = server.memory_kib()
    watching = [Http2(address) for _ in range(16)]
    try:
        for opened in watching:
            for first in range(1, 512, 128):
                calls = (
                    frame(Kind.HEADERS, END_HEADERS, stream, head(WATCH))
                    + frame(Kind.DATA, END_STREAM, stream, message(b""))
                    for stream in range(first, first + 128, 2)
                )
                opened.send(*calls)
            # each has been told what is now
            for _ in range(256):
                assert opened.until_kind(Kind.DATA)
        assert server.memory_kib() - before < 2 * SPARE_KIB
        with Http2(address) as another:
            another.ask(1, WATCH, b"")
            assert another.status(1) == 8
            another.ask(3, "/grpc.health.v1.Health/Check", b"")
            assert another.status(3) == OK
            watching.pop().socket.close()

            numbers = itertools.count(5, 2)

            def is_free() -> bool:
                number = next(numbers)
                another.ask(number, WATCH, b"")
                found = another.until(lambda one: one.stream == number)
                assert found is not None
                return not found.flags & END_STREAM

            eventually(is_free, "a place of those that have left")
    finally:
        for opened in watching:
            opened.socket.close()


@pytest.mark.alone
def test_calls_far_beyond_the_limit_end_the_connection(client: Http2) -> None:
    begun = b"".join(frame(Kind.HEADERS, END_HEADERS, stream, head(LIVE)) for stream in range(1, 20_001, 2))
    assert ends(client, begun)


@pytest.mark.alone
def test_messages_that_stop_half_way_give_their_memory_back(server: Server) -> None:
    clients = [Http2(("127.0.0.1", port_of(server))) for _ in range(20)]
    half = message(bytes(900_000))[:800_000]
    for opened in clients:
        opened.begin(1, INFER)
        opened.data(1, half, end=False)
    eventually(lambda: inflight_bytes(server) >= 16_000_000, "they are counted")
    assert clients[0].status(1) == 4
    settles(lambda: inflight_bytes(server) == 0, "they are given back")
    for opened in clients:
        opened.socket.close()


METHODS: Final = (
    *(f"{SERVICE}/{name}" for name in ("ModelReady", "ModelMetadata", "ModelInfer", "ModelStreamInfer", "ModelConfig")),
    *(f"{SERVICE}/{name}" for name in ("ModelStatistics", "RepositoryIndex", "RepositoryModelLoad", "TraceSetting")),
    *(f"{SERVICE}/{name}" for name in ("SystemSharedMemoryRegister", "CudaSharedMemoryRegister", "LogSettings")),
    "/grpc.health.v1.Health/Check",
    REFLECTION,
)
NONSENSE: Final = (
    b"\xff" * 20,
    b"\x0a\xff\xff\xff\xff\x0f",
    b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x0a\x05ab",
    b"\x0a\x02\xff\xfe",
    b"\x0b" * 200,
    b"\x07",
    b"\x00\x00",
    b"\x2a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
)


@pytest.mark.alone
@pytest.mark.parametrize("path", METHODS)
def test_what_is_no_protobuf_is_an_error_of_its_call(client: Http2, path: str) -> None:
    for number, body in enumerate(NONSENSE):
        client.ask(2 * number + 1, path, body)
        ending = client.ending(2 * number + 1)
        assert isinstance(ending, dict)
        assert int(ending["grpc-status"]) in {0, 3, 5, 12, 13, 14}, ending


@pytest.mark.alone
def test_messages_with_any_change_are_answered(client: Http2) -> None:
    chosen = random.Random(7)
    answered = 0
    for number in range(1500):
        body = bytearray(WHOLE)
        for _ in range(chosen.randint(1, 4)):
            at = chosen.randrange(len(body))
            match chosen.randrange(3):
                case 0:
                    body[at] = chosen.randrange(256)
                case 1:
                    del body[at : at + chosen.randint(1, 20)]
                case _:
                    body[at:at] = chosen.randbytes(chosen.randint(1, 20))
        client.ask(2 * number + 1, INFER, bytes(body))
        answered += client.status(2 * number + 1) >= 0
    assert answered == 1500


@pytest.mark.alone
@pytest.mark.parametrize("lengths", [(), (64,), (64, 64, 64), (64, 63), (65, 64), (0, 64), (64, 0), (1 << 19, 64)])
def test_contents_of_wrong_lengths_are_refused(client: Http2, lengths: tuple[int, ...]) -> None:
    asked = add_sub_request()
    del asked.raw_input_contents[:]
    asked.raw_input_contents.extend(bytes(length) for length in lengths)
    client.ask(1, INFER, asked.SerializeToString())
    assert client.status(1) == 3


@pytest.mark.alone
@pytest.mark.parametrize("shape", [(-1, 16), (2**62, 4), (2**31, 2**31), (0, 16), (), (1,) * 2000])
def test_shapes_that_no_tensor_has_are_refused(client: Http2, shape: tuple[int, ...]) -> None:
    asked = add_sub_request()
    del asked.inputs[0].shape[:]
    asked.inputs[0].shape.extend(shape)
    client.ask(1, INFER, asked.SerializeToString())
    assert client.status(1) == 3


@pytest.mark.alone
def test_fields_that_nobody_knows_are_refused_before_all_are_read(client: Http2) -> None:
    client.ask(1, INFER, bytes([0x78, 0]) * ((1 << 18) + 1))
    ending = client.ending(1)
    assert isinstance(ending, dict)
    assert (ending["grpc-status"], "it has too many fields" in ending["grpc-message"]) == ("3", True)


@pytest.mark.alone
def test_a_hundred_thousand_inputs_are_refused(client: Http2) -> None:
    asked = add_sub_request()
    for _ in range(30_000):
        asked.inputs.add()
    client.ask(1, INFER, asked.SerializeToString())
    assert client.status(1) == 3


@pytest.mark.alone
def test_clients_may_leave_at_every_stage(server: Server) -> None:
    begun = frame(Kind.HEADERS, END_HEADERS, 1, head(INFER))
    whole = begun + frame(Kind.DATA, 1, 1, message(WHOLE))
    for at in range(0, len(whole), 7):
        for leave in (lambda one: one.socket.close(), abort):
            client = Http2(("127.0.0.1", port_of(server)))
            client.send(whole[:at])
            leave(client)


def abort(client: Http2) -> None:
    """Without a goodbye"""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()
