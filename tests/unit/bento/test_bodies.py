"""How much the bodies of a worker's requests may have together, and who gives way when that is not enough."""

from __future__ import annotations

import asyncio
import dataclasses
from threading import Event
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from runners import ConfigInvalid
from runners.bento import service
from runners.bento.web.bodies import Bodies
from runners.bento.web.edge import Edge
from tests.raw_http import chunked, frame
from tests.unit.bento.served import QUICK, Served, echo, served
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from runners.bento.web.asgi import Application, Receive, Scope, Send

MOST = 100
PATIENT = dataclasses.replace(QUICK, head_seconds=30.0, body_seconds=30.0, draining_seconds=30.0)
CHUNKED = [("Transfer-Encoding", "chunked")]


READING = Starlette(routes=[Mount("/", echo)])


def edge(application: Application = READING, patience: float = 30.0) -> Edge:
    limits = dataclasses.replace(PATIENT, body_seconds=patience)
    return Edge(application, None, (), MOST, limits=limits, max_bodies_bytes=MOST)


def serving(application: Edge) -> AbstractContextManager[Served]:
    return served(application, PATIENT)


@pytest.fixture
def server() -> Iterator[Served]:
    with serving(edge()) as server:
        yield server


def post(server: Served, length: int) -> tuple[int, str | None]:
    with server.connect() as connection:
        answer = connection.ask("POST", "/", body=b"a" * length)
        return answer.status, answer.header("retry-after")


def is_free(server: Served) -> bool:
    return post(server, MOST) == (200, None)


def test_a_body_for_which_there_is_no_place_is_refused_unread(server: Served) -> None:
    with server.connect() as first, server.connect() as second:
        first.send(frame("POST", "/", [("content-length", "61")], b"a" * 60))
        eventually(lambda: post(server, 41) == (503, "1"), "it has its place")
        second.send(frame("POST", "/", [("content-length", "41"), ("expect", "100-continue")]))
        answer = second.receive()
        assert answer.status == 503
        assert answer.error == "other requests have the 100 bytes that a worker keeps of bodies: try again later"
        assert second.is_closed()
        assert post(server, 40) == (200, None)
        assert post(server, 0) == (200, None)
        first.send(b"a")
        assert first.receive().body.endswith(b"|" + b"a" * 61)
    assert is_free(server)


def test_a_body_that_is_announced_and_does_not_come_keeps_nobody_out(server: Served) -> None:
    with server.connect() as first:
        first.send(frame("POST", "/", [("content-length", "100"), ("expect", "100-continue")]))
        assert first.receive("HEAD").status == 100
        assert is_free(server)


def test_a_body_in_chunks_takes_what_has_come_of_it(server: Served) -> None:
    with server.connect() as first, server.connect() as second:
        first.send(frame("POST", "/", CHUNKED, b"3c\r\n" + b"a" * 60))
        eventually(lambda: post(server, 41) == (503, "1"), "it is known")
        second.send(frame("POST", "/", CHUNKED, chunked([b"a" * 40])))
        assert second.receive().status == 200
        second.send(frame("POST", "/", CHUNKED, chunked([b"a" * 41])))
        answer = second.receive()
        assert (answer.status, answer.header("retry-after")) == (503, "1")
        first.send(b"\r\n0\r\n\r\n")
        assert first.receive().status == 200
    assert is_free(server)


def test_a_body_has_its_place_as_long_as_its_request_is_served() -> None:
    end = Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await receive()
            await asyncio.to_thread(end.wait, 30)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body"})
        else:
            await echo(scope, receive, send)

    with serving(edge(slow)) as server, server.connect() as connection:
        connection.send(frame("POST", "/slow", body=b"a" * MOST))
        eventually(lambda: post(server, 1) == (503, "1"), "it has its place")
        end.set()
        assert connection.receive().status == 200
        assert is_free(server)


@pytest.mark.parametrize("framing", [("content-length", "100"), ("transfer-encoding", "chunked")])
def test_what_a_client_that_leaves_had_is_free(server: Served, framing: tuple[str, str]) -> None:
    with server.connect() as connection:
        connection.send(frame("POST", "/", [framing], b"63\r\n" + b"a" * 95))
        eventually(lambda: not is_free(server), "it has its place")
    eventually(lambda: is_free(server), "its place is free")


def test_what_an_application_that_fails_had_is_free() -> None:
    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/fails":
            raise RuntimeError("of the application")
        await echo(scope, receive, send)

    with serving(edge(fails)) as server, server.connect() as connection:
        assert connection.ask("POST", "/fails", body=b"a" * MOST).status == 500
        assert is_free(server)


@pytest.mark.clock
def test_a_body_that_stops_loses_its_place_when_its_time_is_over() -> None:
    with served(edge(), QUICK) as server, server.connect() as connection:
        connection.send(frame("POST", "/", [("content-length", "100")], b"a"))
        assert connection.receive().status == 408
        assert is_free(server)


def test_a_body_that_trickles_gives_way_to_the_next() -> None:
    with serving(edge(echo, patience=0.2)) as server, server.connect() as old, server.connect() as new:
        for connection in (old, new):
            connection.send(frame("POST", "/", [("content-length", "51")], b"a" * 49))
        eventually(lambda: post(server, 50) == (200, None), "one has given way")
        answers = [connection.receive() for connection in (old, new) if connection.has_answer()]
        assert [(one.status, one.error) for one in answers] == [
            (408, "the request body takes long to arrive, and others wait for its place")
        ]
        assert len(answers) == 1


def test_the_oldest_give_way_first_and_no_more_than_it_takes() -> None:
    now = 0.0
    ended: list[str] = []
    bodies = Bodies(MOST, 10.0, lambda: now)

    def enter(name: str, length: int) -> None:
        assert bodies.enter(lambda _status, _text: ended.append(name)).take(length)

    enter("chunks", 0)
    enter("first", 20)
    now = 5.0
    enter("second", 30)
    enter("third", 50)
    assert not bodies.have_place(10)
    assert ended == []
    now = 10.0
    assert not bodies.have_place(30)
    assert ended == ["first"]
    now = 15.0
    assert not bodies.have_place(50)
    assert ended == ["first", "first", "second"]


def test_a_body_that_has_come_does_not_give_way() -> None:
    now = 0.0
    ended: list[int] = []
    bodies = Bodies(MOST, 10.0, lambda: now)
    with bodies.enter(lambda status, _text: ended.append(status)) as body:
        assert body.take(MOST)
        body.has_come()
        now = 20.0
        assert not bodies.have_place(1)
        assert ended == []
    assert bodies.have_place(MOST)


def test_a_service_has_place_for_the_largest_body_and_more() -> None:
    kind = type("Large", (), {})
    assert service(max_body_bytes=1 << 30)(kind).max_bodies_bytes == (1 << 30) + (16 << 20)
    assert service(max_body_bytes=1)(kind).max_bodies_bytes == (16 << 20) + 1
    with pytest.raises(ConfigInvalid, match="max_bodies_bytes is 10, expected at least the 11 of max_body_bytes"):
        service(max_body_bytes=11, max_bodies_bytes=10)
