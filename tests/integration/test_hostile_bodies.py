"""Bodies that are large, many, cut into crumbs, or full of what a log should not say: bounds hold, nothing is left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.contract import requests
from tests.contract.requests import Infer, Output, Tensor
from tests.integration.hostile import BODY, HEADERS, PATH, SUM, all_is_well, image, inflight_bytes
from tests.processes import thread_names
from tests.raw_http import chunked, frame
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Headers
    from tests.serving import Server

CHUNKED = ("Transfer-Encoding", "chunked")
FP64 = requests.path("identity_fp64")
MEBIBYTE = 1 << 20


@pytest.fixture
def patient(server: Server) -> Iterator[Server]:
    yield from all_is_well(server)


def sends(headers: Headers, body: bytes) -> dict[str, tuple[Headers, bytes]]:
    """The ways that a body can come: at once, in chunks, in chunks of odd sizes"""
    pieces = [body[at : at + 70_001] for at in range(0, len(body), 70_001)]
    return {
        "with a length": ([*headers, ("Content-Length", str(len(body)))], body),
        "in one chunk": ([*headers, CHUNKED], chunked([body])),
        "in chunks": ([*headers, CHUNKED], chunked(pieces)),
    }


@pytest.mark.alone
@pytest.mark.parametrize("way", sends([], b""))
@pytest.mark.parametrize("count", [10_000, 100_000, 400_000])
def test_long_json_is_read_and_written_as_short_json_is(patient: Server, way: str, count: int) -> None:
    values = [number / 7 for number in range(count)]
    request = Infer("identity_fp64", [Tensor("INPUT0", "FP64", (1, count), values=values)])
    headers, body = sends(*requests.body(request))[way]
    with patient.connect() as connection:
        for _ in range(2):
            connection.send(frame("POST", FP64, headers, body))
            response = connection.receive()
            assert response.json()["outputs"][0]["data"] == values
        broken = json.dumps({"inputs": [{"name": "INPUT0", "data": values}], "outputs": 7})
        response = connection.ask("POST", FP64, body=broken.encode())
        assert response.status == 500
    assert any(name.startswith("kushi-body-") for name in thread_names(patient.pid).values())


@pytest.mark.alone
@pytest.mark.parametrize("way", sends([], b""))
@pytest.mark.parametrize("count", [100_000, 300_000, 3_000_000])
def test_long_binary_data_comes_back(patient: Server, way: str, count: int) -> None:
    data = bytes(range(256)) * (8 * count // 256) + bytes(8 * count % 256)
    tensor = Tensor("INPUT0", "FP64", (1, count), raw=data)
    request = Infer("identity_fp64", [tensor], [Output("OUTPUT0", binary=True)])
    headers, body = sends(*requests.body(request))[way]
    with patient.connect() as connection:
        for _ in range(3):
            connection.send(frame("POST", FP64, headers, body))
            assert connection.receive().binary == data


def test_bytes_in_flight_are_bounded_over_all_connections(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    models.write_identities(repository)
    server = start_server(repository, f"--max-inflight-bytes={2 * MEBIBYTE}")
    large = BODY.ljust(int(1.5 * MEBIBYTE))
    whole = frame("POST", PATH, HEADERS, large)
    with server.connect() as first, server.connect() as second:
        first.send(whole[:-1])
        eventually(lambda: inflight_bytes(server) == len(large), "the first is in flight")
        for _ in range(2):
            second.send(whole)
            response = second.receive()
            assert response.status == 503
            assert response.error.startswith("requests in flight would hold ")
            assert response.error.endswith(f" bytes, at most {2 * MEBIBYTE} are allowed (--max-inflight-bytes)")
            assert response.header("retry-after") == "1"
        assert second.ask("POST", PATH, HEADERS, BODY).status == 200, "a small one has room"
        first.send(whole[-1:])
        assert first.receive().json()["outputs"][0]["data"] == SUM
        eventually(lambda: inflight_bytes(server) == 0, "nothing is in flight")
        second.send(whole)
        assert second.receive().status == 200


def test_a_body_larger_than_all_in_flight_may_hold_is_refused_for_good(
    repository: Path, start_server: StartServer
) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, f"--max-inflight-bytes={MEBIBYTE}")
    large = BODY.ljust(3 * MEBIBYTE // 2)
    too_large = (
        f"request of {len(large)} bytes exceeds the maximum of {MEBIBYTE} bytes for all requests in flight. "
        "Use --max-inflight-bytes to increase the limit."
    )
    with server.connect() as connection:
        for path in (PATH, "/v2/models/add_sub/generate"):
            response = connection.ask("POST", path, HEADERS if path == PATH else (), large)
            assert (response.status, response.error) == (400, too_large)
            assert (response.header("retry-after"), response.header("kushi-error")) == (None, "invalid_input")
            connection.send(frame("POST", path, [CHUNKED], chunked([large[:MEBIBYTE], large[MEBIBYTE:]])))
            response = connection.receive()
            assert (response.status, response.header("retry-after")) == (400, None)
            assert response.error.endswith(too_large[too_large.index(" exceeds") :])
        assert connection.ask("POST", PATH, HEADERS, BODY.ljust(MEBIBYTE)).status == 200
        connection.send(frame("POST", PATH, [("Content-Length", str(len(large))), ("Expect", "100-continue")]))
        response = connection.receive()
        assert (response.status, response.error) == (400, too_large)
    eventually(lambda: inflight_bytes(server) == 0, "nothing is in flight")


@pytest.mark.alone
def test_a_declared_length_holds_nothing_before_the_bytes_arrive(patient: Server) -> None:
    before = inflight_bytes(patient)
    connections = [patient.connect() for _ in range(50)]
    for connection in connections:
        connection.send(frame("POST", PATH, [("Content-Length", str(64 * MEBIBYTE))]) + b" ")
    with patient.connect() as connection:
        assert connection.ask("POST", PATH, HEADERS, BODY).status == 200
    assert inflight_bytes(patient) == before
    for connection in connections:
        connection.close()


def test_chunks_are_counted(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, "--http-max-chunks=100")
    text = (
        "Chunked request body exceeds maximum of 100 non-empty chunks. Send fewer or larger HTTP chunks. "
        "Use --http-max-chunks to increase the limit."
    )
    crumbs = [BODY[:-99], *(bytes([byte]) for byte in BODY[-99:])]
    with server.connect() as connection:
        connection.send(frame("POST", PATH, [CHUNKED]) + chunked(crumbs))
        assert connection.receive().status == 200
        connection.send(frame("POST", PATH, [CHUNKED]) + chunked([*crumbs, *[b" "] * 1000]))
        response = connection.receive()
        assert (response.status, response.error, response.header("connection")) == (400, text, "close")
        assert connection.is_closed()


@pytest.mark.alone
def test_a_flood_of_chunks_is_cut_off(patient: Server) -> None:
    with patient.connect() as connection:
        connection.send(frame("POST", PATH, [CHUNKED]))
        try:
            connection.send(b"1\r\n \r\n" * 200_000)
        except (BrokenPipeError, ConnectionResetError):
            return
        response = connection.receive()
        assert response.status == 400
        assert response.error.startswith("Chunked request body exceeds maximum of 65536 non-empty chunks.")


def test_a_target_that_is_too_long_is_not_blamed_on_a_flag(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, "--http-max-head-size=200000")
    assert server.get("/" + "a" * 65533).status == 404
    refused = server.get("/" + "a" * 65534)
    assert (refused.status, refused.error) == (414, "the target of the request is longer than 65534 bytes")


def test_bounds_of_a_request_are_flags(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    flags = ["max-headers=10", "max-head-size=2000", "max-json-depth=5", "max-tensors=3"]
    server = start_server(repository, *(f"--http-{flag}" for flag in flags))
    live = "/v2/health/live"
    assert server.get(live, [(f"X-{number}", "x") for number in range(9)]).status == 200
    too_large = (
        "the head of the request has more than 10 headers (--http-max-headers) or 2000 bytes (--http-max-head-size)"
    )
    refused = server.get(live, [(f"X-{number}", "x") for number in range(10)])
    assert (refused.status, refused.error) == (431, too_large)
    assert server.get(live, [("X", "x" * 1800)]).status == 200
    refused = server.get(live, [("X", "x" * 2000)])
    assert (refused.status, refused.error) == (431, too_large)

    def error(document: object) -> str:
        response = server.post(PATH, json.dumps(document).encode())
        assert response.status == 400
        return response.error

    entry = {"name": "INPUT0", "datatype": "INT32", "shape": [1, 1], "data": [[[[[1]]]]]}
    assert error({"inputs": [entry]}) == "Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (5)"
    assert error({"inputs": [{}] * 4}) == "request has 4 inputs and outputs, at most 3 are allowed (--http-max-tensors)"


@pytest.mark.alone
def test_many_large_requests_at_once_leave_nothing(patient: Server) -> None:
    headers, body = image(512)
    whole = frame("POST", requests.path("image"), headers, body)
    text = requests.body(Infer("identity_fp64", [Tensor("INPUT0", "FP64", (1, 50_000), values=[0.1] * 50_000)]))[1]
    connections = [patient.connect() for _ in range(8)]
    for connection in connections:
        connection.send(whole + frame("POST", FP64, body=text))
    for connection in connections:
        assert [connection.receive().status, connection.receive().status] == [200, 200]
        connection.close()


@pytest.mark.parametrize("text", ["\r\nINJECTED", "\x1b[31mINJECTED", "\x9b31mINJECTED", "\x00INJECTED"])
def test_clients_do_not_write_the_log(repository: Path, start_server: StartServer, text: str) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, "--log-verbose=2", "--model-control-mode=explicit", "--load-model=*")
    document = json.loads(BODY)
    document["id"] = text
    assert server.post(PATH, json.dumps(document).encode()).status == 200
    document["inputs"][0]["name"] = text
    assert server.post(PATH, json.dumps(document).encode()).status == 400
    quoted = "".join(f"%{byte:02x}" for byte in text.encode())
    assert server.get(f"/v2/models/{quoted}").status == 404
    assert server.post(f"/v2/repository/models/{quoted}/load", b"").status in (400, 500)
    # refused where it is read: as a header it is none
    with server.connect() as connection:
        connection.send(b"GET /v2 HTTP/1.1\r\nX-A: " + text.encode("latin-1") + b"\r\n\r\n")
        connection.finish_sending()
        while not connection.is_closed():
            assert connection.receive("GET").status in (200, 400)
    server.terminate()
    assert server.wait() == 0
    for line in server.log.lines:
        assert not line.startswith("INJECTED")
        assert line.isprintable(), repr(line)


@pytest.mark.parametrize("path", ["/v2/models/nobody/infer", "/v2/models/add_sub/versions/9/generate"])
def test_a_body_in_chunks_names_its_limit_before_any_other_fault(
    repository: Path, start_server: StartServer, path: str
) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, "--http-max-chunks=100", "--http-max-input-size=10000")
    head = frame("POST", path, [("Transfer-Encoding", "chunked")])
    for body, status, expected in (
        (chunked([b"{"] * 101), 400, "Chunked request body exceeds maximum of 100 non-empty chunks."),
        (chunked([b" " * 5001] * 2), 400, "request JSON size of 10002 bytes exceeds the maximum allowed input size"),
        (chunked([b"{"] * 100), 404, "Request for unknown model: "),
    ):
        with server.connect() as connection:
            connection.send(head + body)
            answer = connection.receive()
            assert (answer.status, answer.error[: len(expected)]) == (status, expected)
