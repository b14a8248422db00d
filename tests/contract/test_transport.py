"""HTTP/1.1 itself: framing, keep-alive, pipelining, chunks, interim answers, and what is no HTTP at all."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, HEADER_LENGTH, Infer, Output, Tensor
from tests.raw_http import Connection, chunked, frame

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Response
    from tests.serving import Server

HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")]))
PATH = requests.path("add_sub")
SUM = list(range(1, 17))
UNREADABLE = {
    400: "the head of the request is no HTTP/1.1",
    431: "the head of the request has more than 100 headers (--http-max-headers) or 65536 bytes (--http-max-head-size)",
}
CHUNKED = ("Transfer-Encoding", "chunked")


def binary_request(value: int) -> bytes:
    tensors = [Tensor("INPUT0", "INT32", (1, 1), raw=value.to_bytes(4, "little"))]
    headers, body = requests.body(Infer("identity_int32", tensors, [Output("OUTPUT0", binary=True)], id=str(value)))
    return frame("POST", requests.path("identity_int32"), headers, body)


def test_one_connection_serves_many_requests(connection: Connection) -> None:
    for _ in range(50):
        assert connection.ask("POST", PATH, HEADERS, BODY).json()["outputs"][0]["data"] == SUM


def test_a_closed_connection_is_said_and_done(connection: Connection) -> None:
    response = connection.ask("POST", PATH, [("Connection", "close")], BODY)
    assert response.status == 200
    assert connection.is_closed()


def test_pipelined_requests_are_answered_in_order(connection: Connection) -> None:
    connection.send(b"".join(binary_request(value) for value in range(200)))
    for value in range(200):
        response = connection.receive()
        assert response.infer_json["id"] == str(value)
        assert response.binary == value.to_bytes(4, "little")


def test_pipelined_requests_keep_their_order_when_the_first_is_slow(connection: Connection) -> None:
    slow = Infer("slow", [Tensor("STEPS", "INT64", (1, 1), values=[5000])])
    headers, body = requests.body(slow)
    connection.send(frame("POST", requests.path("slow"), headers, body) + frame("GET", "/v2") + binary_request(3))
    assert connection.receive().json()["model_name"] == "slow"
    assert connection.receive().json()["name"] == "triton"
    assert connection.receive().infer_json["id"] == "3"


def test_pipelined_errors_do_not_disturb_their_neighbours(connection: Connection) -> None:
    connection.send(
        binary_request(1)
        + frame("POST", PATH, body=b"{")
        + frame("GET", "/nowhere")
        + frame("POST", requests.path("missing"), body=BODY)
        + binary_request(2)
    )
    assert [connection.receive().status for _ in range(5)] == [200, 500, 404, 404, 200]


@pytest.mark.parametrize("size", [1, 2, 7, 64, 100_000])
def test_a_body_may_come_in_chunks_of_any_size(connection: Connection, size: int) -> None:
    parts = [BODY[start : start + size] for start in range(0, len(BODY), size)]
    connection.send(frame("POST", PATH, [CHUNKED]) + chunked(parts))
    assert connection.receive().json()["outputs"][0]["data"] == SUM


def test_a_chunked_body_may_carry_binary_tensors(connection: Connection) -> None:
    tensors = [Tensor("INPUT0", "INT32", (1, 3), raw=bytes(range(12)))]
    headers, body = requests.body(Infer("identity_int32", tensors, [Output("OUTPUT0", binary=True)]))
    connection.send(frame("POST", requests.path("identity_int32"), [*headers, CHUNKED]))
    connection.send(chunked([body[:10], body[10:-5], body[-5:]]))
    assert connection.receive().binary == bytes(range(12))


def test_chunk_extensions_and_trailers_are_ignored(connection: Connection) -> None:
    coded = b"%x;name=value\r\n%b\r\n0\r\nX-Trailer: late\r\n\r\n" % (len(BODY), BODY)
    connection.send(frame("POST", PATH, [CHUNKED]) + coded)
    assert connection.receive().json()["outputs"][0]["data"] == SUM
    assert connection.ask("GET", "/v2/health/live").status == 200


@pytest.mark.parametrize("coded", [b"zz\r\nabc\r\n0\r\n\r\n", b"-5\r\nabc\r\n", b"3\r\nabcd\r\n0\r\n\r\n"])
def test_broken_chunks_end_the_connection_and_not_the_server(server: Server, coded: bytes) -> None:
    with server.connect() as connection:
        connection.send(frame("POST", PATH, [CHUNKED]) + coded)
        if not connection.is_closed():
            assert connection.receive().status == 400
            assert connection.is_closed()
    assert server.is_ready()


def test_a_request_may_arrive_byte_by_byte(connection: Connection) -> None:
    for byte in frame("POST", PATH, HEADERS, BODY):
        connection.send(bytes([byte]))
    assert connection.receive().json()["outputs"][0]["data"] == SUM


def test_a_client_that_expects_100_is_told_to_continue(connection: Connection) -> None:
    connection.send(frame("POST", PATH, [("Expect", "100-continue"), ("Content-Length", str(len(BODY)))]))
    assert connection.receive().status == 100
    connection.send(BODY)
    assert connection.receive().json()["outputs"][0]["data"] == SUM


def expecting(path: str, length: int, *headers: tuple[str, str]) -> bytes:
    return frame("POST", path, [("Expect", "100-continue"), ("Content-Length", str(length)), *headers])


def test_a_client_that_was_told_to_continue_goes_on_with_its_connection(either: Connection) -> None:
    for _ in range(3):
        either.send(expecting(PATH, len(BODY)))
        assert either.receive().status == 100
        either.send(BODY)
        response = either.receive()
        assert response.json()["outputs"][0]["data"] == SUM
        assert response.header("connection") is None


def test_a_client_that_expects_100_may_send_chunks(either: Connection) -> None:
    for _ in range(3):
        either.send(frame("POST", PATH, [("Expect", "100-continue"), CHUNKED]))
        assert either.receive().status == 100
        either.send(chunked([BODY[:5], BODY[5:]]))
        response = either.receive()
        assert response.json()["outputs"][0]["data"] == SUM
        assert response.header("connection") is None


def test_a_body_that_turns_out_wrong_leaves_the_connection_usable(connection: Connection) -> None:
    connection.send(expecting(PATH, 1))
    assert connection.receive().status == 100
    connection.send(b"{")
    assert connection.receive().status == 500
    assert connection.ask("POST", PATH, HEADERS, BODY).status == 200


@pytest.mark.parametrize(
    ("path", "length", "headers", "status"),
    [
        (requests.path("missing"), 10, [], 404),
        ("/nowhere", 10, [], 404),
        ("/v2/health/live", 10, [], 405),
        (PATH, 10, [("Content-Encoding", "br")], 501),
        (PATH, 10, [(HEADER_LENGTH, "11")], 400),
        (PATH, 10, [("kushi-timeout-us", "soon")], 400),
        (PATH, 64 * 1024 * 1024 + 1, [], 400),
        (PATH, 2**31, [(HEADER_LENGTH, "10")], 400),
        ("/v2/repository/index", 64 * 1024 * 1024 + 1, [], 400),
    ],
)
def test_a_body_that_would_be_refused_is_not_asked_for(
    server: Server, path: str, length: int, headers: list[tuple[str, str]], status: int
) -> None:
    for address in (server.http, server.http_socket):
        with Connection(address) as connection:
            connection.send(expecting(path, length, *headers))
            response = connection.receive()
            assert response.status == status
            assert response.error
            assert response.header("connection") == "close"
            assert connection.is_closed()


def test_an_answer_that_needs_no_body_comes_without_100(connection: Connection) -> None:
    connection.send(frame("GET", "/v2", [("Expect", "100-continue"), ("Content-Length", "10")]))
    response = connection.receive()
    assert (response.status, response.header("connection")) == (200, "close")
    assert connection.is_closed()


def test_a_client_that_expects_100_without_a_body_keeps_its_connection(connection: Connection) -> None:
    for _ in range(2):
        response = connection.ask("GET", "/v2", [("Expect", "100-continue")])
        assert (response.status, response.header("connection")) == (200, None)


CURL = shutil.which("curl")


@pytest.mark.skipif(CURL is None, reason="needs curl")
def test_curl_sends_a_large_body_when_it_is_wanted_and_not_a_byte_when_not(server: Server, tmp_path: Path) -> None:
    size = 8_000_000
    body = tmp_path / "body"
    body.write_bytes(bytes(size))
    host, port = server.http
    shown = "%{http_code} %{size_upload} %{num_connects}\\n"
    transfers: list[str] = []
    for model in ("missing", "identity_int32", "identity_int32"):
        words = ["-s", "-o", "/dev/null", "-w", shown, "--max-time", "60", "--data-binary", f"@{body}"]
        words += ["-H", "Expect: 100-continue", "-H", f"{HEADER_LENGTH}: 0"]
        transfers += [*(["--next"] if transfers else []), *words, f"http://{host}:{port}{requests.path(model)}"]
    assert CURL is not None
    ran = subprocess.run([CURL, *transfers], capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout.splitlines() == ["404 0 1", f"200 {size} 1", f"200 {size} 0"], ran.stderr


@pytest.mark.parametrize("encoding", ["identity", "Identity"])
def test_a_body_that_is_not_compressed_may_say_so(connection: Connection, encoding: str) -> None:
    response = connection.ask("POST", PATH, [*HEADERS, ("Content-Encoding", encoding)], BODY)
    assert response.json()["outputs"][0]["data"] == SUM


def test_http_1_0_is_answered_and_closed(connection: Connection) -> None:
    connection.send(b"GET /v2/models/add_sub HTTP/1.0\r\n\r\n")
    response = connection.receive()
    assert response.status == 200
    assert response.json()["name"] == "add_sub"
    assert connection.is_closed()


def test_http_1_0_infers(connection: Connection) -> None:
    connection.send(b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (PATH.encode(), len(BODY), BODY))
    assert connection.receive().json()["outputs"][0]["data"] == SUM
    assert connection.is_closed()


def test_header_names_have_no_case(connection: Connection) -> None:
    tensors = [Tensor("INPUT0", "INT32", (1, 1), raw=b"\7\0\0\0")]
    headers, body = requests.body(Infer("identity_int32", tensors))
    ((name, length),) = headers
    assert name == HEADER_LENGTH
    for written in (name.lower(), name.upper()):
        response = connection.ask("POST", requests.path("identity_int32"), [(written, length)], body)
        assert response.json()["outputs"][0]["data"] == [7]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\r\n\r\n\0\0\0\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v2 HTTP/9.9\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: a\r\nBad\x01Name: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v2/models/add_sub/infer HTTP/1.1\r\nHost: a\r\nContent-Length: abc\r\n\r\n",
        b"POST /v2/models/add_sub/infer HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /v2/models/add_sub/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /v2/models/add_sub/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: rubbish\r\n\r\n",
    ],
)
def test_what_is_no_http_ends_the_connection_and_not_the_server(server: Server, garbage: bytes) -> None:
    with server.connect() as connection:
        connection.send(garbage)
        connection.finish_sending()
        if not connection.is_closed():
            assert 400 <= connection.receive("GET").status < 600
            assert connection.is_closed()
    assert server.is_ready()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"hello", 400),
        (b"GET", 400),
        (b"GET  /v2 HTTP/1.1", 400),
        (b"GET /v2\0 HTTP/1.1", 400),
        (b"GET /v2 HTTP/9.9", 400),
        (b"GET /v2 HTTP/1.1\r\nno colon", 400),
        (b"GET /v2 HTTP/1.1\r\nHost: a\r\n folded", 400),
        (b"GET /v2 HTTP/1.1\r\nContent-Length: abc", 400),
        (b"POST /v2/models/add_sub/infer HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2", 400),
        (b"POST /v2/models/add_sub/infer HTTP/1.1\r\nTransfer-Encoding: rubbish", 400),
        (b"GET /v2 HTTP/1.1" + b"\r\nx: y" * 200, 431),
    ],
)
@pytest.mark.parametrize(
    "behind",
    [b"", frame("GET", "/v2/health/live"), frame("POST", PATH, HEADERS, BODY)],
    ids=["alone", "health", "infer"],
)
def test_a_head_that_cannot_be_read_has_a_status_and_a_text_and_ends_the_connection(
    either: Connection, behind: bytes, head: bytes, status: int
) -> None:
    either.send(behind + head + b"\r\n\r\n")
    if behind:
        assert either.receive().status == 200
    response = either.receive()
    assert (response.status, response.header("connection")) == (status, "close")
    assert response.error == UNREADABLE[status]
    assert response.header("content-type") == "application/json"
    assert response.header("kushi-error") == "invalid_input"
    assert either.is_closed()


def test_a_tensor_that_reads_like_such_an_answer_is_left_as_it_is(either: Connection) -> None:
    looks_alike = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\na: \r\n\r\n"
    tensor = Tensor("INPUT0", "INT32", (1, len(looks_alike) // 4), raw=looks_alike)
    path = requests.path("identity_int32")

    def answer(identifier: int) -> Response:
        infer = Infer("identity_int32", [tensor], [Output("OUTPUT0", binary=True)], id="x" * identifier)
        return either.ask("POST", path, *requests.body(infer))

    # longer text is cut here: the tensor leaves alone, after all that comes before it
    piece = 1 << 20
    response = answer(piece - answer(1).infer_header_length + 1)
    assert (response.status, response.infer_header_length) == (200, piece)
    assert response.binary == looks_alike
    assert either.ask("GET", "/v2/health/live").status == 200


def test_an_answer_without_a_body_stays_without_one(repository: Path, start_server: StartServer) -> None:
    server = start_server(repository, "--allow-client-shm=true")
    path, empty = "/v2/systemsharedmemory/unregister", ("Content-Length", "0")
    asks = frame("POST", path, [empty, ("Connection", "close")])
    for sent in ([asks], [frame("POST", path, [empty]), asks], [asks[:-2], asks[-2:]]):
        with server.connect() as connection:
            for part in sent:
                connection.send(part)
            while not connection.is_closed():
                response = connection.receive("POST")
                assert (response.status, response.body) == (200, b"")


def test_a_length_beside_chunks_smuggles_no_request(server: Server) -> None:
    with server.connect() as connection:
        smuggled = frame("GET", "/v2/models/add_sub")
        body = b"0\r\n\r\n" + smuggled
        connection.send(frame("POST", PATH, [("Content-Length", str(len(body))), CHUNKED], body))
        connection.finish_sending()
        answers = []
        while not connection.is_closed():
            answers.append(connection.receive().status)
    assert answers in ([], [400], [500], [500, 200]), "the length ruled, or both did"
    assert server.is_ready()
