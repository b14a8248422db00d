"""Compressed messages over gRPC, both ways"""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING, Any, Final

import grpc
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc

from runners import GrpcOptions
from tests.integration.grpc_doors import SERVICE, add_sub_request, channel, port_of, serving_grpc, tensor_request
from tests.integration.hostile import all_is_well
from tests.raw_http2 import Http2, Kind, message
from tests.serving import Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.conftest import StartServer

INFER: Final = f"{SERVICE}/ModelInfer"
STREAM: Final = f"{SERVICE}/ModelStreamInfer"
LEVELS: Final = ("none", "low", "medium", "high")
BOUNDED: Final = f"--max-inflight-bytes={32 << 20}"
OK, INTERNAL, RESOURCE_EXHAUSTED, UNIMPLEMENTED = 0, 13, 8, 12
TEXT: Final = np.frombuffer(b"the quick brown fox jumps over the lazy dog. " * 4000, np.uint8).reshape(1, -1)


def identity(values: NDArray[Any] = TEXT) -> service_pb2.ModelInferRequest:
    return tensor_request("identity_uint8", "INPUT0", "UINT8", values)


@pytest.fixture(scope="module")
def ports(standard_repository: Path) -> Iterator[Mapping[str, int]]:
    """Of an engine for each level"""
    with (
        serving_grpc(standard_repository, GrpcOptions(compression="none")) as none,
        serving_grpc(standard_repository, GrpcOptions(compression="low")) as low,
        serving_grpc(standard_repository, GrpcOptions(compression="medium")) as medium,
        serving_grpc(standard_repository, GrpcOptions(compression="high")) as high,
    ):
        yield dict(zip(LEVELS, (none, low, medium, high), strict=True))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sent", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_call_is_answered_whatever_is_compressed(
    ports: Mapping[str, int], level: str, sent: grpc.Compression
) -> None:
    with channel(ports[level]) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        for values in (TEXT, TEXT[:, :5], TEXT[:, :0]):
            answer = stub.ModelInfer(identity(values), compression=sent)
            assert answer.raw_output_contents[0] == values.tobytes()


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_tritonclient_compresses(ports: Mapping[str, int], algorithm: str) -> None:
    given = triton.InferInput("INPUT0", list(TEXT.shape), "UINT8")
    given.set_data_from_numpy(TEXT)
    with triton.InferenceServerClient(f"127.0.0.1:{ports['medium']}") as client:
        result = client.infer("identity_uint8", [given], compression_algorithm=algorithm)
        assert np.array_equal(result.as_numpy("OUTPUT0"), TEXT)


@pytest.mark.parametrize("level", LEVELS)
def test_a_stream_of_large_messages_loses_none(ports: Mapping[str, int], level: str) -> None:
    rows = [np.random.default_rng(number).integers(0, 9, (1, 100_000), np.uint8) for number in range(60)]
    with channel(ports[level]) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        asked = (identity(row) for row in rows)
        answers = stub.ModelStreamInfer(asked, compression=grpc.Compression.Gzip, timeout=60)
        for row in rows:
            assert next(answers).infer_response.raw_output_contents[0] == row.tobytes()


def raw_answer(port: int, accepted: str, request: service_pb2.ModelInferRequest) -> tuple[str | None, int, bytes]:
    """The coding that is named, whether the message has it, and the message"""
    with Http2(("127.0.0.1", port)) as client:
        metadata = [("grpc-accept-encoding", accepted)] if accepted else []
        client.ask(1, INFER, request.SerializeToString(), metadata)
        first = client.until_kind(Kind.HEADERS)
        assert first is not None
        body = b""
        while (found := client.until_kind(Kind.DATA, Kind.HEADERS)) and found.kind == Kind.DATA:
            body += found.payload
        assert int.from_bytes(body[1:5]) == len(body) - 5
        return first.fields.get("grpc-encoding"), body[0], body[5:]


@pytest.mark.parametrize(
    ("accepted", "coding"), [("gzip", "gzip"), ("deflate", "deflate"), ("identity, deflate, gzip", "gzip")]
)
def test_answers_are_as_small_as_the_level_says(ports: Mapping[str, int], accepted: str, coding: str) -> None:
    sizes = []
    for level in LEVELS[1:]:
        named, flag, body = raw_answer(ports[level], accepted, identity())
        assert (named, flag) == (coding, 1)
        plain = gzip.decompress(body) if coding == "gzip" else zlib.decompress(body)
        assert service_pb2.ModelInferResponse.FromString(plain).raw_output_contents[0] == TEXT.tobytes()
        sizes.append(len(body))
    assert sizes[0] > sizes[1] >= sizes[2]


@pytest.mark.parametrize(
    ("level", "accepted"), [("none", "gzip"), ("high", "identity"), ("high", "br, zstd"), ("high", "")]
)
def test_an_answer_is_plain_unless_both_sides_want_it(ports: Mapping[str, int], level: str, accepted: str) -> None:
    named, flag, body = raw_answer(ports[level], accepted, identity())
    assert (named, flag) == (None, 0)
    assert service_pb2.ModelInferResponse.FromString(body).raw_output_contents[0] == TEXT.tobytes()


def test_a_short_answer_stays_as_it_is(ports: Mapping[str, int]) -> None:
    _, flag, body = raw_answer(ports["high"], "gzip", add_sub_request())
    assert flag == 0
    assert len(service_pb2.ModelInferResponse.FromString(body).outputs) == 2


@pytest.fixture(scope="module")
def small(standard_repository: Path) -> Iterator[Server]:
    """A server that holds little"""
    server = Server.start(standard_repository, BOUNDED)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def bounded(small: Server) -> Iterator[Server]:
    yield from all_is_well(small)


def bomb(mebibytes: int) -> bytes:
    """That many of zeros"""
    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packing.compress(bytes(1 << 20)) for _ in range(mebibytes)) + packing.flush()


def told(server: Server, path: str, body: bytes, coding: str = "gzip", compressed: int = 1) -> dict[str, str]:
    with Http2(("127.0.0.1", port_of(server))) as client:
        client.begin(1, path, [("grpc-encoding", coding)] if coding else [])
        client.data(1, message(body, compressed=compressed))
        ending = client.ending(1)
        assert isinstance(ending, dict), ending
        return ending


@pytest.mark.alone
@pytest.mark.parametrize("path", [INFER, STREAM, f"{SERVICE}/ServerMetadata"])
@pytest.mark.parametrize("mebibytes", [33, 512])
def test_a_bomb_is_given_up_where_its_share_of_the_memory_ends(
    standard_repository: Path, start_server: StartServer, path: str, mebibytes: int
) -> None:
    server = start_server(standard_repository, BOUNDED)
    attack = bomb(mebibytes)
    with server.grows_by_less_than(160 << 10):
        ending = told(server, path, attack)
    assert int(ending["grpc-status"]) == RESOURCE_EXHAUSTED, ending


@pytest.mark.alone
@pytest.mark.parametrize("coding", ["br", "zstd", "GZIP", "gzip, deflate"])
def test_a_coding_that_is_unknown_is_named_and_so_are_those_that_are_known(bounded: Server, coding: str) -> None:
    ending = told(bounded, INFER, gzip.compress(b""), coding)
    assert int(ending["grpc-status"]) == UNIMPLEMENTED
    assert ending["grpc-message"] == f"compression '{coding}' is not supported, expected gzip, deflate or identity"
    assert ending["grpc-accept-encoding"] == "identity,deflate,gzip"


PACKED: Final = gzip.compress(add_sub_request().SerializeToString(), mtime=0)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("body", "coding", "compressed"),
    [
        (PACKED, "", 1),
        (PACKED, "identity", 1),
        (PACKED, "gzip", 2),
        (PACKED[:-9], "gzip", 1),
        (b"", "gzip", 1),
        (b"not compressed at all", "gzip", 1),
        (PACKED[:-8] + bytes(8), "gzip", 1),
    ],
    ids=["no coding", "identity", "another flag", "cut short", "nothing", "no gzip", "another checksum"],
)
def test_what_cannot_be_unfolded_is_an_error_of_its_call(
    bounded: Server, body: bytes, coding: str, compressed: int
) -> None:
    assert int(told(bounded, INFER, body, coding, compressed)["grpc-status"]) == INTERNAL


@pytest.mark.alone
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_messages_of_one_stream_may_be_compressed_or_not(bounded: Server, coding: str) -> None:
    plain = add_sub_request().SerializeToString()
    packed = PACKED if coding == "gzip" else zlib.compress(plain)
    with Http2(("127.0.0.1", port_of(bounded))) as client:
        client.begin(1, STREAM, [("grpc-encoding", coding)])
        client.data(1, (message(packed, compressed=1) + message(plain)) * 50)
        assert client.status(1) == OK
