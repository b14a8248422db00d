"""Framing that can be read in two ways: it is read in one, and the next request on the connection is seen as sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output
from tests.raw_http import chunked, frame

if TYPE_CHECKING:
    from tests.raw_http import Headers
    from tests.serving import Server

PATH = requests.path("add_sub")
_, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")]))
NEXT = frame("GET", "/v2/models/add_sub")
HIDDEN = frame("GET", "/v2/models/identity_int32")
LENGTH = ("Content-Length", str(len(BODY)))
CHUNKED = ("Transfer-Encoding", "chunked")
CHUNKS = chunked([BODY])

Answers = list[int | str]


def seen(server: Server, data: bytes) -> Answers:
    """What comes back for `data` and a request behind it: statuses, names of models, and in the end 'closed'."""
    answers: Answers = []
    with server.connect() as connection:
        try:
            connection.send(data + NEXT)
            while not connection.is_closed():
                response = connection.receive()
                answers.append(response.json()["name"] if b'"name":"' in response.body[:9] else response.status)
                if answers[-1] == "add_sub":
                    return answers
        except (BrokenPipeError, ConnectionError):
            pass
    return [*answers, "closed"]


def post(headers: Headers, body: bytes) -> bytes:
    return frame("POST", PATH, headers, body)


def raw(*lines: str, body: bytes = b"", end: str = "\r\n") -> bytes:
    return end.join([f"POST {PATH} HTTP/1.1", "Host: a", *lines, "", ""]).encode("latin-1") + body


SERVED: list[tuple[str, bytes, Answers]] = [
    ("a length", post([LENGTH], BODY), [200, "add_sub"]),
    ("the same length twice", post([LENGTH, LENGTH], BODY), [200, "add_sub"]),
    ("chunks", post([CHUNKED], CHUNKS), [200, "add_sub"]),
    ("chunks in capitals", post([("transfer-ENCODING", "CHUNKED")], CHUNKS), [200, "add_sub"]),
    ("blanks around the coding", raw("Transfer-Encoding: \t chunked \t ", body=CHUNKS), [200, "add_sub"]),
    ("trailers", post([CHUNKED], CHUNKS[:-2] + b"Content-Length: 5\r\nX-A: b\r\n\r\n"), [200, "add_sub"]),
    ("a chunk size with zeros before it", post([CHUNKED], b"0000" + CHUNKS), [200, "add_sub"]),
    ("chunk extensions", post([CHUNKED], CHUNKS.replace(b"\r\n", b";a=b;c\r\n", 1)), [200, "add_sub"]),
    ("lines that end bare", raw(f"Content-Length: {len(BODY)}", body=BODY, end="\n"), [200, "add_sub"]),
    ("empty lines before a request", b"\r\n\r\n" + post([LENGTH], BODY), [200, "add_sub"]),
]
# the body is framed by its chunks, and nothing behind it is believed
CLOSED_BEHIND: list[tuple[str, bytes, Answers]] = [
    ("a length before chunks", post([("Content-Length", "5"), CHUNKED], CHUNKS + HIDDEN), [200, "closed"]),
    ("a length behind chunks", post([CHUNKED, ("Content-Length", "5")], CHUNKS + HIDDEN), [200, "closed"]),
    (
        "a length that hides a request behind no chunk",
        post([("Content-Length", str(5 + len(HIDDEN))), CHUNKED], b"0\r\n\r\n" + HIDDEN),
        [400, "closed"],
    ),
]
REFUSED: list[tuple[str, bytes, Answers]] = [
    ("two lengths", post([("Content-Length", "5"), LENGTH], BODY), [400, "closed"]),
    ("a list of lengths", post([("Content-Length", f"{len(BODY)}, 5")], BODY), [400, "closed"]),
    ("a negative length", post([("Content-Length", "-1")], BODY), [400, "closed"]),
    ("a length with a sign", post([("Content-Length", f"+{len(BODY)}")], BODY), [400, "closed"]),
    ("a length in hexadecimal", post([("Content-Length", "0x10")], BODY), [400, "closed"]),
    ("a length beyond 64 bits", post([("Content-Length", "1" * 30)], BODY), [400, "closed"]),
    ("an empty length", post([("Content-Length", "")], BODY), [400, "closed"]),
    ("an unknown coding", post([("Transfer-Encoding", "gzip")], CHUNKS), [400, "closed"]),
    ("a coding that is nearly chunked", post([("Transfer-Encoding", "xchunked")], CHUNKS), [400, "closed"]),
    ("a coding before chunked", post([("Transfer-Encoding", "gzip, chunked")], CHUNKS + HIDDEN), [400, "closed"]),
    ("codings in two headers", post([("Transfer-Encoding", "gzip"), CHUNKED], CHUNKS + HIDDEN), [400, "closed"]),
    ("chunked twice", post([("Transfer-Encoding", "chunked, chunked")], CHUNKS + HIDDEN), [400, "closed"]),
    ("chunked in two headers", post([CHUNKED, CHUNKED], CHUNKS + HIDDEN), [400, "closed"]),
    ("chunked in quotes", post([("Transfer-Encoding", '"chunked"')], CHUNKS), [400, "closed"]),
    ("a coding behind chunked", post([("Transfer-Encoding", "chunked, identity")], CHUNKS), [400, "closed"]),
    ("chunks in HTTP/1.0", post([CHUNKED], CHUNKS).replace(b"HTTP/1.1", b"HTTP/1.0", 1), [400, "closed"]),
    ("a blank before the colon", raw("Transfer-Encoding : chunked", body=CHUNKS), [400, "closed"]),
    ("a tab before the colon", raw(f"Content-Length\t: {len(BODY)}", body=BODY), [400, "closed"]),
    ("a folded header", raw("Transfer-Encoding:", " chunked", body=CHUNKS), [400, "closed"]),
    ("a header that begins with a blank", raw(" Transfer-Encoding: chunked", body=CHUNKS), [400, "closed"]),
    ("a NUL in a header", raw("X-A: a\0b", f"Content-Length: {len(BODY)}", body=BODY), [400, "closed"]),
    ("a bare CR in a header", raw(f"X-A: a\rContent-Length: {len(BODY)}", body=BODY), [400, "closed"]),
    ("a coding with a vertical tab", raw("Transfer-Encoding: \x0bchunked", body=CHUNKS), [400, "closed"]),
    ("a chunk without its size", post([CHUNKED], b"\r\n" + CHUNKS), [400, "closed"]),
    ("a chunk size that is negative", post([CHUNKED], b"-" + CHUNKS), [400, "closed"]),
    ("a chunk size with a sign", post([CHUNKED], b"+" + CHUNKS), [400, "closed"]),
    ("a chunk size with its base", post([CHUNKED], b"0x" + CHUNKS), [400, "closed"]),
    ("a chunk size beyond 64 bits", post([CHUNKED], b"1" * 17 + b"\r\n" + BODY), [400, "closed"]),
    ("a chunk size behind a blank", post([CHUNKED], b" " + CHUNKS), [400, "closed"]),
    ("a chunk longer than its size", post([CHUNKED], CHUNKS.replace(BODY, BODY + b"xx")), [400, "closed"]),
    ("a chunk size that ends bare", post([CHUNKED], CHUNKS.replace(b"\r\n", b"\n", 1)), [400, "closed"]),
    (
        "a chunk extension with a line",
        post([CHUNKED], CHUNKS.replace(b"\r\n", b";a\nb\r\n", 1)),
        [400, "closed"],
    ),
    ("a chunk extension without end", post([CHUNKED], b"1;" + b"a" * 40_000 + b"\r\n"), [400, "closed"]),
    ("trailers without end", post([CHUNKED], CHUNKS[:-2] + b"X-A: b\r\n" * 20_000), [400, "closed"]),
]
# refused before the body: it is taken in, and the next request begins behind it
CARRIED_ON: list[tuple[str, bytes, Answers]] = [
    ("an unknown model", frame("POST", requests.path("missing"), [LENGTH], BODY), [404, "add_sub"]),
    ("an unknown model in chunks", frame("POST", requests.path("missing"), [CHUNKED], CHUNKS), [404, "add_sub"]),
    ("an unknown path", frame("POST", "/nowhere", [LENGTH], BODY), [404, "add_sub"]),
    ("a wrong method", frame("PUT", PATH, [LENGTH], BODY), [405, "add_sub"]),
    ("a body where none is expected", frame("GET", "/v2/health/live", [LENGTH], BODY), [200, "add_sub"]),
    ("a body that is a request", frame("POST", requests.path("missing"), body=HIDDEN), [404, "add_sub"]),
    ("broken JSON", post([], b"{"), [500, "add_sub"]),
    ("an Expect that is met at once", post([LENGTH, ("Expect", "100-continue")], BODY), [100, 200, "add_sub"]),
    ("an unknown Expect", post([LENGTH, ("Expect", "the-unexpected")], BODY), [200, "add_sub"]),
]
# nobody knows whether a body follows
LEFT: list[tuple[str, bytes, Answers]] = [
    (
        "an Expect of a request that is refused",
        frame("POST", requests.path("missing"), [LENGTH, ("Expect", "100-continue")]),
        [404, "closed"],
    ),
    (
        "a length beyond all bounds",
        frame("POST", PATH, [("Content-Length", str(2**40))]),
        [400, "closed"],
    ),
]
CASES = [*SERVED, *CLOSED_BEHIND, *REFUSED, *CARRIED_ON, *LEFT]


@pytest.mark.parametrize(("data", "answers"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_one_reading(server: Server, data: bytes, answers: Answers) -> None:
    assert seen(server, data) == answers


def test_a_request_behind_a_refused_head_is_not_read(server: Server) -> None:
    assert seen(server, b"GET /v2 HTTP/1.1\r\nno colon\r\n\r\n" + HIDDEN) == [400, "closed"]


def test_the_answer_says_that_the_connection_ends(server: Server) -> None:
    with server.connect() as connection:
        connection.send(post([CHUNKED], b"zz\r\n"))
        assert connection.receive().header("connection") == "close"
        assert connection.is_closed()
