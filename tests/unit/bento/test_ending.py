"""The end of a worker whose clients keep it: they do not read, or have asked for more than it has time for."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import ExitStack, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from tests.raw_http import frame
from tests.unit.bento.served import QUICK, echo, served
from tests.unit.bento.test_websocket import upgrade
from tests.waiting import eventually

if TYPE_CHECKING:
    from runners.bento.web.asgi import Receive, Scope, Send
    from tests.raw_http import Connection
    from tests.unit.bento.served import Served

pytestmark = pytest.mark.clock

# None of these may matter once the worker ends.
PATIENT = dataclasses.replace(QUICK, head_seconds=600.0, body_seconds=600.0)
IMPATIENT_WITH_CLIENTS = dataclasses.replace(PATIENT, last_client_seconds=0.5)
ENDS_SOON = dataclasses.replace(PATIENT, last_client_seconds=600.0, exit_seconds=0.5)
LINGERS = dataclasses.replace(IMPATIENT_WITH_CLIENTS, draining_seconds=600.0)
PIECE = bytes(1 << 20)


async def pour(scope: Scope, receive: Receive, send: Send) -> None:
    """Sends without end, to whoever reads it"""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while True:
            await send({"type": "websocket.send", "bytes": PIECE})
            await asyncio.sleep(0)
    await receive()
    gone = asyncio.ensure_future(receive())
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while not gone.done():
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
        await asyncio.sleep(0)


def until_nothing_fits(server: Served, clients: int) -> None:
    """Until what the server has sent to each client waits in its own memory"""

    def is_full() -> bool:
        connections = tuple(server.server.server_state.connections)
        return sum(found.transport.get_write_buffer_size() > 0 for found in connections) == clients

    eventually(is_full, "the clients are deaf")


def test_clients_that_ask_on_and_on_and_never_read_are_not_waited_for() -> None:
    with served(pour, IMPATIENT_WITH_CLIENTS) as server, server.connect() as connection:
        connection.send(frame("GET", "/") * 50)
        until_nothing_fits(server, 1)
        server.server.should_exit = True
        server.until_it_has_ended()


def test_nor_is_one_whose_body_was_given_up_and_that_neither_reads_nor_leaves() -> None:
    has_begun = Event()

    async def reading(scope: Scope, receive: Receive, send: Send) -> None:
        has_begun.set()
        await echo(scope, receive, send)

    with served(reading, LINGERS) as server, server.connect() as connection:
        connection.send(frame("POST", "/", body=b"{", headers=[("Content-Length", "100000")]))
        assert has_begun.wait(30)
        server.server.should_exit = True
        server.until_it_has_ended()


def test_nor_are_websockets_that_never_read() -> None:
    with served(pour, IMPATIENT_WITH_CLIENTS) as server, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(server.connect()).send(upgrade())
        until_nothing_fits(server, 3)
        server.server.should_exit = True
        server.until_it_has_ended()


def read_on(connection: Connection, over: Event) -> None:
    with suppress(OSError):
        while not over.is_set() and connection.socket.recv(1 << 20):
            pass


def test_an_answer_without_end_is_cut_when_the_time_of_the_exit_is_over() -> None:
    over = Event()
    with served(pour, ENDS_SOON) as server, server.connect() as connection:
        connection.send(frame("GET", "/"))
        reading = Thread(target=read_on, args=(connection, over))
        reading.start()
        try:
            server.server.should_exit = True
            server.until_it_has_ended()
        finally:
            over.set()
            connection.close()
            reading.join()


def test_requests_that_still_wait_then_are_not_begun() -> None:
    begun: list[str] = []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["path"])
        await asyncio.sleep(1.0)
        await echo(scope, receive, send)

    with served(slow, ENDS_SOON) as server, server.connect() as connection:
        connection.send(frame("GET", "/") * 50)
        eventually(lambda: bool(begun), "the first one runs")
        server.server.should_exit = True
        answers = [connection.receive()]
        while answers[-1].header("connection") != "close":
            answers.append(connection.receive())
        assert {answer.status for answer in answers} == {200}
        assert len(answers) == len(begun) < 50
        server.until_it_has_ended()
