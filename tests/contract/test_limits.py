"""Every bound of the HTTP door: over it comes an immediate, clear error, and memory stays where it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.contract import requests
from tests.contract.requests import HEADER_LENGTH, Infer, Output, Tensor
from tests.raw_http import Connection, Response, chunked, frame

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

PATH = requests.path("identity_int32")
CHUNKED = ("Transfer-Encoding", "chunked")
LIMIT = 64 * 1024 * 1024


def too_large(size: int, limit: int = LIMIT) -> str:
    return (
        f"request JSON size of {size} bytes exceeds the maximum allowed input size of {limit} bytes. "
        "Use --http-max-input-size to increase the limit."
    )


def test_a_body_too_large_is_refused_before_it_is_sent(connection: Connection) -> None:
    connection.send(frame("POST", PATH, [("Content-Length", str(LIMIT + 1))]))
    response = connection.receive()
    assert (response.status, response.error) == (400, too_large(LIMIT + 1))


def test_a_client_that_waits_for_100_is_refused_instead(connection: Connection) -> None:
    connection.send(frame("POST", PATH, [("Content-Length", str(LIMIT + 1)), ("Expect", "100-continue")]))
    response = connection.receive()
    assert (response.status, response.error) == (400, too_large(LIMIT + 1))


def test_a_length_beyond_32_bits_is_refused_before_it_is_sent(connection: Connection) -> None:
    connection.send(frame("POST", PATH, [("Content-Length", str(2**32)), (HEADER_LENGTH, "10")]))
    response = connection.receive()
    expected = "Unable to parse Content-Length, value is out of range [ -2147483648, 2147483647 ], got: 4294967296"
    assert (response.status, response.error) == (400, expected)


def test_a_json_part_too_large_is_refused_beside_binary_data(connection: Connection) -> None:
    length = LIMIT + 1
    connection.send(frame("POST", PATH, [("Content-Length", str(length + 8)), (HEADER_LENGTH, str(length))]))
    response = connection.receive()
    assert (response.status, response.error) == (400, too_large(length))


@pytest.mark.alone
def test_chunks_without_end_are_cut_off(repository: Path, start_server: StartServer) -> None:
    models.write_identities(repository)
    server = start_server(repository)
    piece = b" " * (1 << 20)
    with server.connect() as connection, server.grows_by_less_than(3 * LIMIT // 1024):
        connection.send(frame("POST", PATH, [CHUNKED]))
        try:
            for _ in range(4 * LIMIT // len(piece)):
                connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        except (BrokenPipeError, ConnectionResetError):
            pass
        else:
            pytest.fail("the server read four times its limit")
    assert server.is_ready()


def test_one_chunk_too_many_is_refused_before_anything_else_is_said(server: Server) -> None:
    with server.connect() as connection:
        connection.send(frame("POST", requests.path("add_sub"), [CHUNKED, (HEADER_LENGTH, "0")]))
        # without the end, which would lie unread behind the refusal
        connection.send(chunked([b"1"] * 65_537).removesuffix(b"0\r\n\r\n"))
        response = connection.receive()
    assert response.status == 400
    assert response.error.startswith("Chunked request body exceeds maximum of 65536 non-empty chunks")


def test_a_limit_of_ones_own_is_kept(repository: Path, start_server: StartServer) -> None:
    models.write_identities(repository)
    server = start_server(repository, "--http-max-input-size=1000")
    body = requests.body(Infer("identity_int32", [Tensor("INPUT0", "INT32", (1, 1), values=[1])]))[1]
    with server.connect() as connection:
        assert connection.ask("POST", PATH, body=body.ljust(1000)).status == 200
        response = connection.ask("POST", PATH, body=body.ljust(1001))
        assert (response.status, response.error) == (400, too_large(1001, 1000))
    with server.connect() as connection:
        connection.send(frame("POST", PATH, [CHUNKED]) + chunked([body.ljust(900), b" " * 900]))
        response = connection.receive()
        assert response.status == 400
        assert "exceeds the maximum allowed input size of 1000 bytes" in response.error
    with server.connect() as connection:
        text = '{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,251],"data":[]}]}'
        response = connection.ask("POST", PATH, body=text.encode())
        expected = (
            "JSON input 'INPUT0' has a byte_size (1004 bytes) that exceeds the maximum allowed value of 1000 bytes. "
            "Use --http-max-input-size to increase the limit."
        )
        assert (response.status, response.error) == (400, expected)


@pytest.mark.parametrize("chunks", [False, True])
@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/v2/repository/index", 64 << 10),
        ("/v2/models/add_sub/trace/setting", 64 << 10),
        ("/v2/logging", 64 << 10),
        ("/v2/systemsharedmemory/region/any/register", 64 << 10),
    ],
)
def test_a_request_that_is_no_inference_has_a_limit_of_its_own(
    server: Server, path: str, most: int, *, chunks: bool
) -> None:
    with server.connect() as connection:
        for length, is_too_long in ((most, False), (most + 1, True)):
            body = b"{}".ljust(length)
            if chunks:
                connection.send(frame("POST", path, [CHUNKED]) + chunked([body]))
                response = connection.receive()
            else:
                response = connection.ask("POST", path, body=body)
            text = f"a request of {length} bytes exceeds the {most} bytes that one may have that is no inference"
            assert (response.status == 400 and response.error == text) == is_too_long


def test_binary_data_counts_towards_the_limit(repository: Path, start_server: StartServer) -> None:
    models.write_identities(repository)
    server = start_server(repository, "--http-max-input-size=1000")

    def ask(numbers: int) -> Response:
        tensor = Tensor("INPUT0", "INT32", (1, numbers), raw=bytes(4 * numbers))
        headers, body = requests.body(Infer("identity_int32", [tensor], [Output("OUTPUT0", binary=True)]))
        return server.post(PATH, body, headers)

    assert ask(100).binary == bytes(400)
    response = ask(2000)
    assert response.status == 400
    assert response.error.startswith("request body of 8")
    assert response.error.endswith(
        " bytes exceeds the maximum allowed input size of 1000 bytes. Use --http-max-input-size to increase the limit."
    )


@pytest.mark.parametrize("count", [1_000, 20_000])
def test_too_many_headers_are_refused(server: Server, count: int) -> None:
    with server.connect() as connection:
        try:
            connection.send(frame("GET", "/v2/health/live", [(f"X-{number}", "x") for number in range(count)]))
            assert connection.receive("GET").status in (400, 431)
        except (BrokenPipeError, ConnectionError):
            pass
    assert server.is_ready()


def test_a_header_too_long_is_refused(server: Server) -> None:
    with server.connect() as connection:
        try:
            connection.send(frame("GET", "/v2/health/live", [("X-Long", "x" * 4_000_000)]))
            assert connection.receive("GET").status in (400, 431)
        except (BrokenPipeError, ConnectionError):
            pass
    assert server.is_ready()


def test_a_usual_number_of_headers_is_served(connection: Connection) -> None:
    headers = [(f"X-{number}", "x" * 100) for number in range(60)]
    assert connection.ask("GET", "/v2/health/live", headers).status == 200


def test_a_path_too_long_is_refused(server: Server) -> None:
    with server.connect() as connection:
        try:
            connection.send(frame("GET", "/v2/models/" + "x" * 2_000_000))
            assert connection.receive("GET").status in (400, 404, 414, 431)
        except (BrokenPipeError, ConnectionError):
            pass
    assert server.is_ready()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        '{"a":' * 1_000_000,
        '{"parameters":{"a":' + "[" * 500 + "]" * 500 + '},"inputs":[]}',
        '{"mood":' + "[" * 100_000 + "]" * 100_000 + ',"inputs":[]}',
        '{"inputs":[{"data":' + "[" * 100_000 + "]" * 100_000 + "}]}",
    ],
    ids=["open arrays", "open objects", "deep parameter", "deep unknown member", "deep data"],
)
def test_json_of_any_depth_is_refused_and_crashes_nothing(server: Server, text: str) -> None:
    response = server.post(PATH, text.encode())
    assert 400 <= response.status <= 500
    assert response.error
    assert server.is_ready()


@pytest.mark.parametrize("member", ["inputs", "outputs"])
def test_a_hundred_thousand_tensors_are_refused_with_a_short_text(server: Server, member: str) -> None:
    tensors = [
        {"name": f"T{number}", "datatype": "INT32", "shape": [1, 1], "data": [number]} for number in range(100_000)
    ]
    document = {"inputs": [], member: tensors}
    response = server.post(PATH, json.dumps(document).encode())
    assert response.status == 400
    assert response.error
    assert len(response.body) < 100_000
    assert server.is_ready()


def test_a_hundred_thousand_tensors_of_one_name_are_refused_with_a_short_text(server: Server) -> None:
    tensors = [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 1], "data": [1]}] * 100_000
    response = server.post(PATH, json.dumps({"inputs": tensors}).encode())
    assert response.status == 400
    assert response.error
    assert len(response.body) < 10_000


def test_a_usual_number_of_tensors_reaches_the_model(server: Server) -> None:
    tensors = [{"name": f"T{number}", "datatype": "INT32", "shape": [1, 1], "data": [number]} for number in range(256)]
    response = server.post(PATH, json.dumps({"inputs": tensors}).encode())
    assert response.status == 400
    assert response.error.startswith("[request id: <id_unknown>] expected 1 inputs but got 256 inputs for model")


@pytest.mark.parametrize(("count", "status"), [(1024, 200), (1025, 400), (100_000, 400)])
def test_parameters_are_taken_up_to_their_limit(server: Server, count: int, status: int) -> None:
    document = {
        "parameters": {f"p{number}": number for number in range(count)},
        "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 1], "data": [1]}],
    }
    assert server.post(PATH, json.dumps(document).encode()).status == status
    assert server.is_ready()
