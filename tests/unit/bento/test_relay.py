"""The relay in front of an engine that answers whatever the test writes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from runners import Engine
from tests.unit.bento.asgi import Call, ask
from tests.unit.bento.relayed import OK, Scripted, relay_to, relaying, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.bento.asgi import Answer


def answers(path: Path, live: Engine, script: bytes, *, count: int = 1, method: str = "GET") -> list[Answer]:
    """What clients get from an engine that answers so and closes then"""
    got: list[Answer] = []

    async def main() -> None:
        engine = Scripted([script], close=True)
        async with relaying(path, live, engine) as relay:
            for _ in range(count):
                call = Call("/v2", method=method)
                got.append(call.answer)
                with suppress(ConnectionResetError):
                    await ask(relay, call)

    run(main())
    return got


@pytest.mark.parametrize(
    ("script", "status", "body"),
    [
        (OK, 200, b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", 404, b"abc"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na", 200, b"a"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
    ],
)
def test_an_answer_arrives_however_it_is_framed(
    path: Path, live: Engine, script: bytes, status: int, body: bytes
) -> None:
    (answer,) = answers(path, live, script)
    assert (answer.status, answer.body, answer.complete) == (status, body, True)


@pytest.mark.parametrize(
    "script",
    [
        b"",
        b"\0\0\0\0",
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 ",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_answer_makes_a_503(path: Path, live: Engine, script: bytes) -> None:
    (answer,) = answers(path, live, script)
    assert answer.status == 503
    assert answer.json() == {"error": "the engine is not there yet, or not any more: /readyz answers 200 when it is"}
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    "script",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_an_answer_that_ends_early_is_not_taken_for_whole(path: Path, live: Engine, script: bytes) -> None:
    (answer,) = answers(path, live, script)
    assert not answer.complete or answer.status == 503


def test_the_answer_to_head_has_a_length_and_no_body(path: Path, live: Engine) -> None:
    async def main() -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n"
        engine = Scripted([head, OK], close=False)
        async with relaying(path, live, engine) as relay:
            answer = await ask(relay, Call("/v2", method="HEAD"))
            assert (answer.status, answer.headers, answer.body) == (200, {"content-length": "500"}, b"")
            assert (await ask(relay, Call("/v2", method="GET"))).body == b"ok"
            assert engine.connections == 1

    run(main())


def test_a_body_after_the_answer_to_head_goes_to_nobody(path: Path, live: Engine) -> None:
    async def main() -> None:
        engine = Scripted([OK], close=False)
        async with relaying(path, live, engine) as relay:
            assert (await ask(relay, Call("/v2", method="HEAD"))).body == b""
            await engine.gone.wait()

    run(main())


def test_a_connection_is_used_again(path: Path, live: Engine) -> None:
    async def main() -> None:
        engine = Scripted([OK] * 5, close=False)
        async with relaying(path, live, engine) as relay:
            for _ in range(5):
                assert (await ask(relay, Call("/v2"))).body == b"ok"
        assert engine.connections == 1

    run(main())


def test_a_request_that_is_refused_takes_no_connection(path: Path, live: Engine) -> None:
    async def main() -> None:
        engine = Scripted([OK] * 5, close=False)
        async with relaying(path, live, engine) as relay:
            for _ in range(5):
                assert (await ask(relay, Call("/v2"))).body == b"ok"
                assert (await ask(relay, Call("/v2", headers=[(b"content-length", b"9")]))).status == 400
        assert engine.connections == 1

    run(main())


@pytest.mark.parametrize(
    "script",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nhostile",
        OK + b"rest",
    ],
    ids=["close", "an answer too many", "bytes too many"],
)
def test_a_connection_of_no_use_is_not_used_again(path: Path, live: Engine, script: bytes) -> None:
    async def main() -> None:
        engine = Scripted([script], close=False)
        async with relaying(path, live, engine) as relay:
            assert (await ask(relay, Call("/v2"))).status in (200, 503)
            await engine.gone.wait()
        assert engine.connections == 1

    run(main())


def test_the_answer_of_one_request_never_goes_to_another(path: Path, live: Engine) -> None:
    async def main() -> None:
        hostile = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nhostile"
        engine = Scripted([OK + hostile, OK, OK], close=False)
        async with relaying(path, live, engine) as relay:
            for _ in range(3):
                answer = await ask(relay, Call("/v2"))
                assert (answer.status, answer.body) in ((200, b"ok"), (503, answer.body))
                assert b"hostile" not in answer.body

    run(main())


def test_without_an_engine_there_is_a_503(path: Path, live: Engine) -> None:
    async def main() -> None:
        assert (await ask(relay_to(path, live), Call("/v2"))).status == 503

    run(main())


def test_headers_of_a_connection_stay_on_it(path: Path, live: Engine) -> None:
    async def main() -> None:
        script = b"HTTP/1.1 200 OK\r\nConnection: x-inner\r\nX-Inner: 1\r\nKeep-Alive: 5\r\nDate: a\r\nX-Outer: 2\r\n"
        engine = Scripted([script + b"content-length: 0\r\n\r\n"], close=True)
        async with relaying(path, live, engine) as relay:
            headers = [
                *((b"connection", b"keep-alive, X-Mine"), (b"x-mine", b"1"), (b"te", b"trailers")),
                *((b"expect", b"100-continue"), (b"x-passed", b"2")),
            ]
            answer = await ask(relay, Call("/v2/a", headers=headers))
            assert answer.headers == {"x-outer": "2", "content-length": "0"}
        assert engine.heads == [b"POST /v2/a HTTP/1.1\r\nx-passed: 2\r\n\r\n"]

    run(main())


@pytest.mark.parametrize("pieces", [[b"abc"], [b"a", b"bc"], [b"", b"abc"], [b"abc", b""]])
def test_a_body_without_a_length_goes_in_chunks(path: Path, live: Engine, pieces: list[bytes]) -> None:
    async def main() -> None:
        engine = Scripted([OK], close=True)
        async with relaying(path, live, engine) as relay:
            assert (await ask(relay, Call("/v2", body=pieces))).body == b"ok"
        assert b"transfer-encoding: chunked\r\n" in engine.heads[0]

    run(main())


def test_a_length_that_is_said_to_be_of_the_connection_still_frames_the_body(path: Path, live: Engine) -> None:
    async def main() -> None:
        engine = Scripted([OK], close=True)
        inner = b"GET /v2/smuggled HTTP/1.1\r\n\r\n"
        async with relaying(path, live, engine) as relay:
            headers = [(b"connection", b"Content-Length"), (b"content-length", b"%d" % len(inner))]
            assert (await ask(relay, Call("/v2", headers=headers, body=[inner]))).body == b"ok"
        assert engine.heads[0] == b"POST /v2 HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(inner)

    run(main())
