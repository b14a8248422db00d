"""Small compressed bodies that become large: no more is made of them than there is room for, and nothing is left."""

from __future__ import annotations

import gzip
import zlib
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from tests import models
from tests.contract import requests
from tests.integration.hostile import BODY, HEADERS, PATH, SUM, all_is_well
from tests.raw_http import chunked, frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server

MEBIBYTE: Final = 1 << 20
LIMIT: Final = 8 * MEBIBYTE
BUDGET: Final = 64 * MEBIBYTE
BOMB: Final = 60_000_000
"""What a bomb becomes; the bomb itself is a thousandth of that."""
WITHIN: Final = 30_000_000
"""Of these the two threads for large bodies may make one each; of all that come, not nearly all."""

COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {"gzip": gzip.compress, "deflate": zlib.compress}
CODINGS: Final = pytest.mark.parametrize("coding", COMPRESS)
TOO_LARGE: Final = (
    f"Decompressed data size exceeds the maximum allowed value of {LIMIT} bytes. Use --http-max-input-size to increase "
    "the limit."
)
PARSE: Final = "failed to parse the request JSON buffer:"


@cache
def bomb(coding: str, size: int = BOMB) -> bytes:
    made = COMPRESS[coding](b" " * size)
    assert len(made) * 900 < size
    return made


@pytest.fixture
def strict(repository: Path, start_server: StartServer) -> Iterator[Server]:
    """A server that takes no large request"""
    models.write_add_sub(repository)
    server = start_server(repository, f"--http-max-input-size={LIMIT}", "--http-thread-count=4")
    with server.grows_by_less_than((4 * LIMIT + 32 * MEBIBYTE) // 1024):
        yield from all_is_well(server)


def explode(server: Server, coding: str, body: bytes, *headers: tuple[str, str]) -> tuple[int, str]:
    """The answer to a body, which comes with its length and in chunks; the connection goes on after each."""
    answers = set()
    headers = (*headers, ("Content-Encoding", coding))
    with server.connect() as connection:
        for framing, sent in (
            (("Content-Length", str(len(body))), body),
            (("Transfer-Encoding", "chunked"), chunked([body[:100], body[100:]])),
        ):
            connection.send(frame("POST", PATH, [*headers, framing], sent))
            response = connection.receive()
            answers.add((response.status, response.error if response.status != 200 else ""))
            assert connection.ask("POST", PATH, HEADERS, BODY).json()["outputs"][0]["data"] == SUM
    (answer,) = answers
    return answer


@pytest.mark.alone
@CODINGS
def test_a_bomb_is_refused_at_the_limit(strict: Server, coding: str) -> None:
    assert explode(strict, coding, bomb(coding)) == (400, TOO_LARGE)


@pytest.mark.alone
@CODINGS
def test_a_bomb_that_is_cut_short_is_refused_at_the_limit_too(strict: Server, coding: str) -> None:
    assert explode(strict, coding, bomb(coding)[:-100]) == (400, TOO_LARGE)


@pytest.mark.alone
@CODINGS
def test_a_bomb_below_the_limit_that_is_cut_short_is_broken(strict: Server, coding: str) -> None:
    text = "failed to decompress the request body: incomplete deflate stream"
    assert explode(strict, coding, bomb(coding, LIMIT - 1)[:-20]) == (400, text)


@pytest.mark.alone
@CODINGS
def test_a_bomb_below_the_limit_is_a_request_like_any_other(strict: Server, coding: str) -> None:
    assert explode(strict, coding, bomb(coding, LIMIT)) == (500, f"{PARSE} The document is empty. at {LIMIT}")


@pytest.mark.alone
@CODINGS
def test_a_bomb_in_a_bomb_is_opened_once(strict: Server, coding: str) -> None:
    nested = COMPRESS[coding](bomb(coding))
    assert explode(strict, coding, nested) == (500, f"{PARSE} Invalid value. at 0")
    with strict.connect() as connection:
        response = connection.ask("POST", PATH, [("Content-Encoding", f"{coding}, {coding}")], nested)
        assert (response.status, response.error) == (501, "Unsupported compression type")


@pytest.mark.alone
@CODINGS
def test_a_bomb_behind_the_end_of_a_body_is_not_opened(strict: Server, coding: str) -> None:
    assert explode(strict, coding, COMPRESS[coding](BODY) + bomb(coding)) == (200, "")


@pytest.mark.alone
def test_many_members_are_one(strict: Server) -> None:
    small = gzip.compress(b" " * 1000)
    assert explode(strict, "gzip", small * 10_000) == (500, f"{PARSE} The document is empty. at 1000")


@pytest.mark.alone
@CODINGS
def test_a_header_length_beyond_what_a_bomb_becomes_is_refused(strict: Server, coding: str) -> None:
    size = LIMIT - 1
    length = (requests.HEADER_LENGTH, str(size + 1))
    text = f"inference header size should be in range (0, {size}), got: {size + 1}"
    assert explode(strict, coding, bomb(coding, size), length) == (400, text)
    beyond = (requests.HEADER_LENGTH, str(LIMIT + 1))
    text = (
        f"request JSON size of {LIMIT + 1} bytes exceeds the maximum allowed input size of {LIMIT} bytes. Use "
        "--http-max-input-size to increase the limit."
    )
    assert explode(strict, coding, bomb(coding, size), beyond) == (400, text)


@pytest.fixture
def small(repository: Path, start_server: StartServer) -> Iterator[Server]:
    """A server that takes large requests, but not many at once"""
    models.write_add_sub(repository)
    server = start_server(repository, f"--max-inflight-bytes={BUDGET}", "--http-thread-count=4")
    yield from all_is_well(server)


@pytest.mark.alone
def test_many_bombs_at_once_hold_no_more_than_all_requests_may(small: Server) -> None:
    bodies = [bomb(coding, WITHIN) for coding in COMPRESS]
    with small.grows_by_less_than((2 * BUDGET + 32 * MEBIBYTE) // 1024):
        assert read_of_many(small, bodies) > 0, "the first two have room"


def read_of_many(small: Server, bodies: list[bytes]) -> int:
    """How many of fifty are read; the others are refused"""
    connections = [small.connect() for _ in range(50)]
    for number, connection in enumerate(connections):
        headers = [("Content-Encoding", "gzip"), ("Content-Length", str(len(bodies[number % 2])))]
        connection.send(frame("POST", PATH, headers, bodies[number % 2]))
    read = 0
    for connection in connections:
        response = connection.receive()
        if response.status == 503:
            assert response.error.startswith("requests in flight would hold ")
            assert response.error.endswith(f" bytes, at most {BUDGET} are allowed (--max-inflight-bytes)")
            assert response.header("retry-after") == "1"
        else:
            expected = (500, f"{PARSE} The document is empty. at {WITHIN}")
            assert (response.status, response.error) == expected
            read += 1
        assert connection.ask("POST", PATH, HEADERS, BODY).status == 200
        connection.close()
    return read


@CODINGS
def test_a_bomb_larger_than_all_requests_may_hold_is_refused_for_good(
    repository: Path, start_server: StartServer, coding: str
) -> None:
    models.write_add_sub(repository)
    server = start_server(repository, f"--max-inflight-bytes={BUDGET // 4}")
    status, text = explode(server, coding, bomb(coding))
    assert status == 400
    assert text.startswith("request of ")
    assert text.endswith(
        f" bytes exceeds the maximum of {BUDGET // 4} bytes for all requests in flight. "
        "Use --max-inflight-bytes to increase the limit."
    )
    with server.connect() as connection:
        response = connection.ask("POST", PATH, [("Content-Encoding", coding)], bomb(coding))
        assert (response.header("retry-after"), response.header("kushi-error")) == (None, "invalid_input")
        assert connection.ask("POST", PATH, HEADERS, BODY).json()["outputs"][0]["data"] == SUM


@pytest.mark.alone
def test_a_bomb_that_nobody_waits_for_leaves_nothing(small: Server) -> None:
    for _ in range(20):
        with small.connect() as connection:
            body = bomb("gzip", WITHIN)
            headers = [("Content-Encoding", "gzip"), ("Content-Length", str(len(body)))]
            connection.send(frame("POST", PATH, headers, body))
