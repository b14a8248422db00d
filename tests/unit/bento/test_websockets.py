"""Methods that answer a WebSocket, for clients of a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from httpx_ws import WebSocketDisconnect, WebSocketSession, connect_ws
from pydantic import BaseModel

from runners import ConnectionLost, InvalidInput, Overloaded
from runners.bento import service, websocket
from tests.bentoml_internals import set_current_service
from tests.unit.bento.served import served

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER_S = 10.0


class Length(BaseModel):
    length: int


class Listener:
    """Methods of every kind"""

    def __init__(self) -> None:
        self.ended = Event()

    @websocket("/lengths")
    async def lengths(self, messages: AsyncIterator[bytes]) -> AsyncIterator[Length]:
        try:
            async for data in messages:
                yield Length(length=len(data))
        finally:
            self.ended.set()

    @websocket("/total")
    async def total(self, messages: AsyncIterator[bytes]) -> AsyncIterator[Length]:
        yield Length(length=sum([len(data) async for data in messages]))

    @websocket("/failing")
    async def failing(self, messages: AsyncIterator[bytes]) -> AsyncIterator[Length]:
        yield Length(length=0)
        raise FAILURES[(await anext(messages)).decode()]


class Both(Listener):
    """Has what the other one declares, and its own"""

    @websocket("/first")
    async def first(self, messages: AsyncIterator[bytes]) -> AsyncIterator[Length]:
        yield Length(length=len(await anext(messages)))


FAILURES = {
    "invalid": InvalidInput("expected a tone"),
    "overloaded": Overloaded("the queue is full"),
    "lost": ConnectionLost("unix:///run/kushi.sock: there is no such socket"),
    "long": Overloaded("ä" * 100),
    "bug": ValueError("something secret"),
}


@pytest.fixture(scope="module", params=[Listener, Both])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    made: Any = service(name="Listening", workers=1)(request.param)
    ((application, path, _),) = made.mount_apps
    assert path == "/"
    set_current_service(made())
    with served(application) as server:
        yield f"http://127.0.0.1:{server.address[1]}"
    set_current_service(None)


@contextmanager
def connected(address: str, path: str) -> Iterator[WebSocketSession]:
    socket: WebSocketSession
    with httpx.Client() as client, connect_ws(f"{address}{path}", client) as socket:
        yield socket


def last_words(socket: WebSocketSession) -> tuple[int, str | None]:
    with pytest.raises(WebSocketDisconnect) as ended:
        socket.receive(timeout=ANSWER_S)
    return ended.value.code, ended.value.reason or None


def test_each_answer_is_json_and_an_empty_message_ends_it(address: str) -> None:
    with connected(address, "/lengths") as socket:
        for data in (b"abc", bytes(70_000)):
            socket.send_bytes(data)
            assert socket.receive_json(timeout=ANSWER_S) == {"length": len(data)}
        socket.send_bytes(b"")
        assert last_words(socket) == (1000, None)


def test_answers_may_follow_the_last_message(address: str) -> None:
    with connected(address, "/total") as socket:
        for data in (b"abc", b"de", b""):
            socket.send_bytes(data)
        assert socket.receive_json(timeout=ANSWER_S) == {"length": 5}
        assert last_words(socket) == (1000, None)


def test_text_is_refused(address: str) -> None:
    with connected(address, "/lengths") as socket:
        socket.send_text("abc")
        assert last_words(socket) == (1003, "expected binary messages, got text")


@pytest.mark.parametrize(
    ("failure", "code", "reason"),
    [
        ("invalid", 1003, "expected a tone"),
        ("overloaded", 1011, "the queue is full"),
        ("lost", 1011, "the engine is not there yet, or not any more: /readyz answers 200 when it is"),
        # as much as the frame that closes may have, and no half of a letter
        ("long", 1011, "ä" * 61),
        ("bug", 1011, "the service failed"),
    ],
)
def test_a_client_hears_why_it_ends(address: str, failure: str, code: int, reason: str) -> None:
    with connected(address, "/failing") as socket:
        assert socket.receive_json(timeout=ANSWER_S) == {"length": 0}
        socket.send_bytes(failure.encode())
        assert last_words(socket) == (code, reason)


def test_a_method_ends_with_its_client() -> None:
    made: Any = service(name="Left", workers=1)(Listener)
    instance = made()
    set_current_service(instance)
    try:
        with served(made.mount_apps[0][0]) as server:
            with connected(f"http://127.0.0.1:{server.address[1]}", "/lengths") as socket:
                socket.send_bytes(b"abc")
                socket.receive(timeout=ANSWER_S)
                assert not instance.ended.is_set()
            assert instance.ended.wait(ANSWER_S)
    finally:
        set_current_service(None)


def test_a_service_without_any_has_no_application_for_them() -> None:
    made: Any = service(name="Deaf", workers=1)(type("Deaf", (), {}))
    assert made.mount_apps == []


def test_what_cannot_answer_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"^websocket\(\) expects an async generator, got <function "):

        @websocket("/events")  # type: ignore[type-var]
        async def events(self: object, messages: AsyncIterator[bytes]) -> None: ...
