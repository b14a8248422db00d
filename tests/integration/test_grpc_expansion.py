"""Small messages over gRPC that would become large: what may come out is bounded, and not what came in."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final

import pytest
from tritonclient.grpc import service_pb2

from tests import models
from tests.integration.grpc_doors import SERVICE, port_of
from tests.raw_http2 import Http2, message
from tests.serving import Server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import StartServer

pytestmark = pytest.mark.alone

INFER: Final = f"{SERVICE}/ModelInfer"
INVALID_ARGUMENT, RESOURCE_EXHAUSTED = 3, 8
MIB: Final = 1 << 20
BUDGET: Final = 256 * MIB
PLAIN_BYTES = 64 << 10


@pytest.fixture
def small(repository: Path, start_server: StartServer) -> Server:
    models.write_identities(repository)
    return start_server(repository, f"--max-inflight-bytes={BUDGET}", "--model-control-mode=explicit", "--load-model=*")


def packed(data: bytes) -> bytes:
    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packing.compress(data) + packing.flush()


def told(server: Server, path: str, body: bytes) -> tuple[int, str]:
    with Http2(("127.0.0.1", port_of(server))) as client:
        client.begin(1, path, [("grpc-encoding", "gzip")])
        client.data(1, message(packed(body), compressed=1))
        ending = client.ending(1)
        assert isinstance(ending, dict), ending
        return int(ending["grpc-status"]), ending.get("grpc-message", "")


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def empty_texts() -> bytes:
    return field(1, field(1, b"trace_level") + field(2, b"\x0a\x00" * (48 * MIB)))


def many_keys() -> bytes:
    return b"".join(field(1, field(1, b"%d" % number) + field(2, b"")) for number in range(400_000))


def large_name() -> bytes:
    return field(1, b"n" * (50 * MIB))


@pytest.mark.parametrize(
    ("path", "body", "most"),
    [
        (f"{SERVICE}/TraceSetting", empty_texts, PLAIN_BYTES),
        (f"{SERVICE}/TraceSetting", many_keys, PLAIN_BYTES),
        (f"{SERVICE}/LogSettings", many_keys, PLAIN_BYTES),
        (f"{SERVICE}/ModelMetadata", large_name, PLAIN_BYTES),
        ("/grpc.health.v1.Health/Check", large_name, PLAIN_BYTES),
        ("/grpc.health.v1.Health/Watch", large_name, PLAIN_BYTES),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", large_name, PLAIN_BYTES),
    ],
)
def test_what_is_no_inference_has_little_to_say(small: Server, path: str, body: Callable[[], bytes], most: int) -> None:
    sent = body()
    with small.grows_by_less_than(64 << 10):
        status, text = told(small, path, sent)
    assert status == RESOURCE_EXHAUSTED
    # refused as it is announced, or while it unfolds
    assert re.fullmatch(rf"Received message larger than max \((\d+ vs\. )?{most}\)", text)
    assert small.is_ready()


def test_a_load_may_be_large_and_have_few_parameters(small: Server) -> None:
    text = field(2, b"m") + b"".join(field(3, field(1, b"file:%d" % n) + field(2, b"\x22\x00")) for n in range(400_000))
    with small.grows_by_less_than(64 << 10):
        status, said = told(small, f"{SERVICE}/RepositoryModelLoad", text)
    assert (status, said) == (INVALID_ARGUMENT, "at most 1008 parameters and names can be sent")


def numbers(count: int, shape: list[int]) -> bytes:
    """A request of so many zeros as INT64, of a byte each, that says it had that shape"""
    head: bytes = service_pb2.ModelInferRequest(model_name="identity_int64").SerializeToString()
    tensor = service_pb2.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="INT64", shape=shape)
    described: bytes = tensor.SerializeToString()
    return head + field(5, described + field(5, field(3, bytes(count))))


def test_numbers_that_are_not_what_their_shape_says_are_never_made(small: Server) -> None:
    with small.grows_by_less_than(3 * 24 * 1024):
        status, text = told(small, INFER, numbers(24 * MIB, [1, 4]))
    assert status == INVALID_ARGUMENT
    assert f"{8 * 24 * MIB}" in text
    assert "32" in text


def test_numbers_that_would_take_more_than_all_requests_may_are_refused(small: Server) -> None:
    count = 40 * MIB
    with small.grows_by_less_than(2 * 40 * 1024):
        status, text = told(small, INFER, numbers(count, [1, count]))
    assert status == INVALID_ARGUMENT
    assert f"exceeds the maximum of {BUDGET} bytes for all requests in flight" in text


def test_numbers_for_which_there_is_room_are_answered(small: Server) -> None:
    status, text = told(small, INFER, numbers(MIB, [1, MIB]))
    assert (status, text) == (0, "")
