"""A worker that has as many connections as it serves: who gives way, and who is told so."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tests.raw_http import frame
from tests.unit.bento.served import PATIENT, echo, served
from tests.waiting import eventually

if TYPE_CHECKING:
    from runners.bento.web.asgi import Receive, Scope, Send


def test_silent_connections_give_way_to_new_ones_the_longest_silent_first() -> None:
    with served(echo, dataclasses.replace(PATIENT, max_connections=10)) as server:
        silent = [server.connect() for _ in range(10)]
        eventually(lambda: server.connections == 10, "all are there")
        for number in range(5):
            with server.connect() as connection:
                assert connection.ask("GET", f"/{number}").status == 200
        for number, connection in enumerate(silent):
            if number == 0:
                assert connection.is_closed()
            connection.close()


def test_a_request_is_never_dismissed_and_health_is_always_told() -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/held":
            while (await receive())["type"] != "http.disconnect":
                pass
        else:
            await echo(scope, receive, send)

    with served(application, dataclasses.replace(PATIENT, max_connections=10)) as server:
        held = [server.connect() for _ in range(10)]
        for connection in held:
            connection.send(frame("GET", "/held"))
        eventually(lambda: len(server.server.server_state.tasks) == 10, "all are served")
        for path, status in [("/livez", 200), ("/readyz", 200), ("/v2/health/ready", 200), ("/other", 503)]:
            with server.connect() as connection:
                answer = connection.ask("GET", path)
                assert (answer.status, answer.header("connection")) == (status, "close")
        for connection in held:
            assert not connection.has_answer()
            connection.close()
