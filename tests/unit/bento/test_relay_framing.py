"""The relay in front of a real engine: whatever an ASGI server hands on, no request becomes a part of another."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from starlette.exceptions import HTTPException

from runners import Engine
from runners.bento.relay.exchange import Relay
from runners.bento.relay.origin import Origin
from runners.bento.relay.watch import Watch
from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output
from tests.unit.bento.asgi import Call, ask
from tests.unit.bento.relayed import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


PATH = requests.path("add_sub")
UNKNOWN = requests.path("nothing")
VICTIM = b"GET /v2/models/add_sub/config HTTP/1.1\r\nhost: a\r\nx-rest: "
ROUNDS = 150


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    repository = tmp_path_factory.mktemp("models")
    models.write_add_sub(repository)
    with Engine(repository) as engine:
        yield engine


@pytest.fixture(scope="module")
def port(engine: Engine) -> int:
    return engine.serve_http("127.0.0.1", 0)


@asynccontextmanager
async def relaying(engine: Engine, port: int) -> AsyncIterator[Relay]:
    relay = Relay(Origin("", ("127.0.0.1", port)), Watch(engine))
    try:
        yield relay
    finally:
        relay.close()


def length(count: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % count


def infer(identity: str) -> Call:
    headers, body = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")], id=identity))
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers]
    return Call(PATH, headers=[*pairs, length(len(body))], body=[body])


async def is_clean(relay: Relay) -> None:
    """What is asked next gets its own answers"""
    for number in range(3):
        answer = await ask(relay, infer(str(number)))
        assert (answer.status, answer.json()["id"]) == (200, str(number))


def test_a_body_that_is_not_handed_on_is_no_part_of_the_next_request(engine: Engine, port: int) -> None:
    async def main() -> None:
        async with relaying(engine, port) as relay:
            upgrade = [(b"connection", b"Upgrade"), (b"upgrade", b"h2c")]
            answer = await ask(relay, Call(UNKNOWN, headers=[*upgrade, length(len(VICTIM))]))
            assert (answer.status, answer.json()) == (400, {"error": "the request body ended early"})
            await is_clean(relay)

    run(main())


@pytest.mark.parametrize(
    ("announced", "body", "text"),
    [
        (9, [b"abc", b"def", b""], "the request body ended early"),
        (3, [b"abcd"], "the request body is longer than its content-length"),
        (0, [VICTIM], "the request body is longer than its content-length"),
    ],
)
def test_a_body_that_is_not_as_long_as_announced_goes_to_nobody(
    engine: Engine, port: int, announced: int, body: list[bytes], text: str
) -> None:
    async def main() -> None:
        async with relaying(engine, port) as relay:
            answer = await ask(relay, Call(PATH, headers=[length(announced)], body=body))
            assert (answer.status, answer.json()) == (400, {"error": text})
            await is_clean(relay)

    run(main())


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([length(3), length(3)], "the request has more than one content-length"),
        ([length(3), length(4)], "the request has more than one content-length"),
        ([(b"content-length", b"+3")], "the content-length is '+3', expected a number"),
        ([(b"content-length", b"3, 3")], "the content-length is '3, 3', expected a number"),
        ([(b"content-length", b"9" * 30)], f"the content-length is '{'9' * 30}', expected a number"),
        (
            [length(3), (b"transfer-encoding", b"chunked")],
            "the request has both a content-length and a transfer-encoding",
        ),
        ([(b"a b", b"c"), length(3)], "'a b' is no name of a header"),
        ([(b"", b"c"), length(3)], "'' is no name of a header"),
        ([(b"a", b"c\r\nd: e"), length(3)], "the header 'a' has a value that is none"),
        ([(b"a", b"c\0"), length(3)], "the header 'a' has a value that is none"),
    ],
)
def test_a_head_that_no_server_would_take_is_refused(
    engine: Engine, port: int, headers: list[tuple[bytes, bytes]], text: str
) -> None:
    async def main() -> None:
        async with relaying(engine, port) as relay:
            answer = await ask(relay, Call(PATH, headers=headers, body=[b"abc"]))
            assert (answer.status, answer.json()) == (400, {"error": text})
            await is_clean(relay)

    run(main())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("CONNECT", "/v2", 400),
        ("GET", "/v2 HTTP/1.1", 400),
        ("GET", "/v2/\x7f", 400),
        ("GET", "/v2/" + "a" * 70_000, 414),
    ],
    ids=["connect", "blank", "control character", "long"],
)
def test_a_request_line_that_no_server_would_take_is_refused(
    engine: Engine, port: int, method: str, path: str, status: int
) -> None:
    async def main() -> None:
        async with relaying(engine, port) as relay:
            answer = await ask(relay, Call(path, method=method))
            assert answer.status == status
            assert list(answer.json()) == ["error"]

    run(main())


def test_more_headers_than_anybody_takes_are_refused(engine: Engine, port: int) -> None:
    async def main() -> None:
        async with relaying(engine, port) as relay:
            for count in (1000, 40_000):
                headers = [(b"a%d" % place, b"") for place in range(count)]
                answer = await ask(relay, Call("/v2", method="GET", headers=headers))
                assert answer.status == 431
            await is_clean(relay)

    run(main())


@pytest.mark.parametrize("body", [[], [b"{"]], ids=["nothing of it", "a part"])
def test_an_answer_that_comes_before_the_body_is_passed_on_at_once(
    engine: Engine, port: int, body: list[bytes]
) -> None:
    async def main() -> None:
        async with relaying(engine, port) as relay:
            call = Unfinished(PATH, headers=[length(999_999_999_999)], body=body)
            answer = await ask(relay, call)
            assert answer.status == 400
            assert list(answer.json()) == ["error"]
            await is_clean(relay)

    run(main())


@pytest.mark.clock
def test_a_body_that_stops_is_ended(engine: Engine, port: int) -> None:
    async def main() -> None:
        async with relaying(engine, port) as relay:
            # The connection, which measures the time, ends the wait.
            with pytest.raises(HTTPException) as ended:
                await ask(relay, Stopped(PATH, headers=[length(100)], body=[b"{"]))
            assert ended.value.status_code == 408
            await is_clean(relay)

    run(main())


@pytest.mark.clock
def test_half_an_upload_leaves_nothing_behind(engine: Engine, port: int) -> None:
    async def main() -> None:
        async with relaying(engine, port) as relay:

            async def leaves() -> None:
                call = Unfinished(UNKNOWN, headers=[length(1000)], body=[b"half"])
                asking = asyncio.create_task(ask(relay, call))
                await asyncio.sleep(random.random() / 100)
                call.leave()
                await asking

            for _ in range(ROUNDS // 10):
                await asyncio.gather(*(leaves() for _ in range(10)), *(is_clean(relay) for _ in range(3)))

    run(main())


class Unfinished(Call):
    """Of which there will be more than comes"""

    async def receive(self) -> dict[str, object]:
        message = await super().receive()
        if message["type"] == "http.request":
            message["more_body"] = True
        return dict(message)


class Stopped(Unfinished):
    """Of which no more comes in time"""

    async def receive(self) -> dict[str, object]:
        if not self._pieces:
            await asyncio.sleep(0.2)
            raise HTTPException(408, "the request body did not arrive in time")
        return await super().receive()


class Asker:
    """Asks in random ways, and knows what must come back"""

    def __init__(self, chance: random.Random, identity: str) -> None:
        self.kind = chance.choice(("whole", "pieces", "chunks", "unknown", "short", "leaves"))
        self._identity = identity
        self._turns = chance.randrange(5)
        headers, body = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")], id=identity))
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers]
        framing = (b"transfer-encoding", b"chunked") if self.kind == "chunks" else length(len(body))
        cuts = (
            [] if self.kind == "whole" else sorted(chance.randrange(len(body)) for _ in range(chance.randrange(1, 4)))
        )
        pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        if self.kind == "short":
            pieces[-1] = pieces[-1][:-1]
        made = Unfinished if self.kind == "leaves" else Call
        self._call = made(UNKNOWN if self.kind == "unknown" else PATH, headers=[*pairs, framing], body=pieces)

    async def ask(self, relay: Relay) -> None:
        asking = asyncio.create_task(ask(relay, self._call))
        if self.kind == "leaves":
            for _ in range(self._turns):
                await asyncio.sleep(0)
            self._call.leave()
        answer = await asking
        wanted = {"unknown": {404}, "short": {400}, "leaves": {0, 200}}.get(self.kind, {200})
        assert answer.status in wanted, (self.kind, answer)
        if answer.status == 200:
            assert answer.json()["id"] == self._identity


def test_everybody_gets_the_own_answer_however_bodies_come(engine: Engine, port: int) -> None:
    """Random framings, early refusals and clients that leave, many at a time on few connections"""
    seed = random.randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)

    async def main() -> None:
        async with relaying(engine, port) as relay:
            for start in range(0, ROUNDS, 15):
                askers = [Asker(chance, str(number)) for number in range(start, start + 15)]
                await asyncio.gather(*(asker.ask(relay) for asker in askers))
            await is_clean(relay)

    run(main())
