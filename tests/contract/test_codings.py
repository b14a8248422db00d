"""Compressed bodies, of requests and of answers: what is sent compressed means what it would mean plain."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.contract import requests
from tests.contract.cases import CASES, Http
from tests.contract.requests import ADD_SUB_INPUTS, HEADER_LENGTH, Infer, Output, Tensor
from tests.raw_http import Connection, chunked, frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Headers, Response
    from tests.serving import Server

COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}
PATH = requests.path("add_sub")
HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")]))
SUM = list(range(1, 17))
LIMIT = 1_000_000
TOO_LARGE = (
    f"Decompressed data size exceeds the maximum allowed value of {LIMIT} bytes. Use --http-max-input-size to increase "
    "the limit."
)


def identity(count: int, *, binary: bool) -> tuple[str, Headers, bytes]:
    """A request for as many integers, in and out."""
    values = range(count)
    tensor = Tensor("INPUT0", "INT32", (1, count), None if binary else values, pack(values) if binary else None)
    headers, body = requests.body(Infer("identity_int32", [tensor], [Output("OUTPUT0", binary=binary)]))
    return requests.path("identity_int32"), headers, body


def pack(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "GZip"])
def test_a_compressed_request_is_served(either: Connection, coding: str) -> None:
    body = COMPRESS[coding.lower()](BODY)
    response = either.ask("POST", PATH, [*HEADERS, ("Content-Encoding", coding)], body)
    assert response.json()["outputs"][0]["data"] == SUM


@pytest.mark.parametrize(("said", "sent"), [("gzip", "deflate"), ("deflate", "gzip")])
def test_the_format_is_told_by_the_body_itself(connection: Connection, said: str, sent: str) -> None:
    response = connection.ask("POST", PATH, [*HEADERS, ("Content-Encoding", said)], COMPRESS[sent](BODY))
    assert response.json()["outputs"][0]["data"] == SUM


@pytest.mark.parametrize("coding", COMPRESS)
@pytest.mark.parametrize("count", [1, 100_000, 1_000_000], ids=["small", "large", "larger"])
def test_the_header_length_counts_in_the_body_that_was_compressed(either: Connection, coding: str, count: int) -> None:
    path, headers, body = identity(count, binary=True)
    response = either.ask("POST", path, [*headers, ("Content-Encoding", coding)], COMPRESS[coding](body))
    assert response.status == 200, response.body
    assert response.binary == pack(range(count))


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_compressed_body_may_come_in_chunks(connection: Connection, coding: str) -> None:
    body = COMPRESS[coding](BODY)
    connection.send(frame("POST", PATH, [("Transfer-Encoding", "chunked"), ("Content-Encoding", coding)]))
    connection.send(chunked([body[:1], body[1:-3], body[-3:]]))
    assert connection.receive().json()["outputs"][0]["data"] == SUM


@pytest.mark.parametrize("coding", COMPRESS)
@pytest.mark.parametrize("level", [0, 1, 9])
def test_every_level_of_compression_is_read(connection: Connection, coding: str, level: int) -> None:
    body = gzip.compress(BODY, level) if coding == "gzip" else zlib.compress(BODY, level)
    response = connection.ask("POST", PATH, [("Content-Encoding", coding)], body)
    assert response.json()["outputs"][0]["data"] == SUM


@pytest.mark.parametrize("coding", COMPRESS)
def test_what_follows_the_compressed_data_is_not_read(connection: Connection, coding: str) -> None:
    for more in (b"garbage", b"\0" * 512, COMPRESS[coding](b"more")):
        response = connection.ask("POST", PATH, [("Content-Encoding", coding)], COMPRESS[coding](BODY) + more)
        assert response.json()["outputs"][0]["data"] == SUM


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_raw_tensor_may_be_compressed(connection: Connection, coding: str) -> None:
    body = COMPRESS[coding](pack(SUM))
    headers = [(HEADER_LENGTH, "0"), ("Content-Encoding", coding)]
    assert connection.ask("POST", requests.path("identity_int32"), headers, body).binary == pack(SUM)


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_compressed_request_is_refused_as_a_plain_one(server: Server, coding: str) -> None:
    tried = 0
    with server.connect() as connection:
        for case in CASES:
            if not isinstance(case.request, Http) or case.request.path != PATH:
                continue
            headers = dict(case.request.headers)
            # refused before the body is read
            if "Content-Encoding" in headers:
                continue
            headers["Content-Encoding"] = coding
            response = connection.ask("POST", PATH, list(headers.items()), COMPRESS[coding](case.request.body))
            assert (response.status, response.error) == (case.code.http, case.text), case.name
            tried += 1
    assert tried > 100


def test_codings_that_can_be_read_are_named_where_another_is_refused(either: Connection) -> None:
    response = either.ask("POST", PATH, [("Content-Encoding", "br")], BODY)
    assert (response.status, response.header("accept-encoding")) == (501, "gzip, deflate")
    assert either.ask("POST", PATH, HEADERS, BODY).status == 200


@pytest.mark.alone
def test_no_more_is_decompressed_than_a_request_may_have(repository: Path, start_server: StartServer) -> None:
    models.write_identities(repository)
    server = start_server(repository, f"--http-max-input-size={LIMIT}")
    path = requests.path("identity_int32")
    with server.connect() as connection, server.grows_by_less_than(100_000):
        for coding, compress in COMPRESS.items():
            bomb = compress(b" " * 200_000_000)
            response = connection.ask("POST", path, [("Content-Encoding", coding)], bomb)
            assert (response.status, response.error) == (400, TOO_LARGE)
            _, _, body = identity(10, binary=False)
            largest = compress(body.ljust(LIMIT))
            assert connection.ask("POST", path, [("Content-Encoding", coding)], largest).status == 200
            response = connection.ask("POST", path, [("Content-Encoding", coding)], compress(body.ljust(LIMIT + 1)))
            assert (response.status, response.error) == (400, TOO_LARGE)


def test_a_compressed_body_that_must_be_too_large_is_refused_before_it_is_sent(
    repository: Path, start_server: StartServer
) -> None:
    models.write_identities(repository)
    server = start_server(repository, f"--http-max-input-size={LIMIT}")
    with server.connect() as connection:
        headers = [("Content-Length", str(LIMIT + 1)), ("Content-Encoding", "gzip")]
        connection.send(frame("POST", requests.path("identity_int32"), headers))
        response = connection.receive()
    expected = (
        f"request body of {LIMIT + 1} bytes exceeds the maximum allowed input size of {LIMIT} bytes. "
        "Use --http-max-input-size to increase the limit."
    )
    assert (response.status, response.error) == (400, expected)


def ask_accepting(connection: Connection, accepted: str | None, count: int = 2000, *, binary: bool = False) -> Response:
    path, headers, body = identity(count, binary=binary)
    accepting = [] if accepted is None else [("Accept-Encoding", accepted)]
    response = connection.ask("POST", path, [*headers, *accepting], body)
    assert response.status == 200, response.body
    return response


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        (None, None),
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip, deflate, br, zstd", "gzip"),
        ("identity", None),
        ("gzip;q=0.2, deflate;q=0.4", "deflate"),
        ("gzip;q=0.2, identity;q=0.4, deflate;q=0.1", None),
        ("gzip;q=0", None),
        ("*", None),
        ("br", None),
        ("", None),
        ("gzip;q=x", None),
    ],
)
def test_an_answer_is_compressed_as_its_client_accepts_it(
    either: Connection, accepted: str | None, coding: str | None
) -> None:
    plain = ask_accepting(either, None)
    response = ask_accepting(either, accepted)
    assert response.header("content-encoding") == coding
    assert (DECOMPRESS[coding](response.body) if coding else response.body) == plain.body
    assert response.header("content-length") == str(len(response.body))


@pytest.mark.parametrize("coding", COMPRESS)
@pytest.mark.parametrize("count", [1000, 500_000])
def test_the_header_length_of_a_compressed_answer_counts_in_what_was_compressed(
    either: Connection, coding: str, count: int
) -> None:
    response = ask_accepting(either, coding, count, binary=True)
    assert response.header("content-encoding") == coding
    assert response.header("content-type") == "application/octet-stream"
    whole = DECOMPRESS[coding](response.body)
    length = int(response.header("inference-header-content-length") or 0)
    assert json.loads(whole[:length])["outputs"][0]["shape"] == [1, count]
    assert whole[length:] == pack(range(count))


def test_an_answer_of_a_few_bytes_is_sent_as_it_is(either: Connection) -> None:
    response = ask_accepting(either, "gzip", 10)
    assert response.header("content-encoding") is None
    assert response.json()["outputs"][0]["data"] == list(range(10))


def test_errors_and_answers_of_other_routes_are_sent_as_they_are(connection: Connection) -> None:
    accepting = [("Accept-Encoding", "gzip")]
    name = "x" * 1000
    refused = connection.ask("POST", requests.path(name), accepting, BODY)
    assert (refused.status, refused.header("content-encoding")) == (404, None)
    assert name in refused.error
    failed = connection.ask("POST", PATH, accepting, b'{"inputs": [{"name": "%b"}]}' % name.encode())
    assert (failed.status, failed.header("content-encoding")) == (400, None)
    statistics = connection.ask("GET", "/v2/models/stats", accepting)
    assert statistics.header("content-encoding") is None
    assert len(statistics.body) > 5000
    assert statistics.json()["model_stats"]
