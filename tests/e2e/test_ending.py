"""
The end of a service, seen by clients that come all the while: each is answered or refused, and none is reset. Clients
that do not read what they have asked for do not keep it from ending.
"""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import ExitStack
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from tests.e2e.bento import START_S, STOP_S, Bento
from tests.raw_http import Connection, frame
from tests.unit.bento.test_websocket import upgrade
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.clock

_ENDS = 2
_CLIENTS = 4
_SERVICE = """
import bentoml
from runners.bento import depends, service
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute


async def pour(socket):
    await socket.accept()
    while True:
        await socket.send_bytes(bytes(1 << 20))


async def large(request):
    return Response(bytes(1 << 20))


@bentoml.asgi_app(Starlette(routes=[WebSocketRoute("/pour", pour), Route("/large", large)]))
@service(workers=2)
class Small:
    models = depends(url="http://127.0.0.1:1")

    @bentoml.api
    async def double(self, number: int) -> int:
        return 2 * number
"""


def come_again_and_again(bento: Bento, over: Event, seen: Counter[str]) -> None:
    while not over.is_set():
        try:
            with Connection(bento.address, STOP_S) as connection:
                for _ in range(2):
                    connection.send(frame("GET", "/livez"))
                    answer = connection.receive()
                    seen[str(answer.status)] += 1
                    if answer.header("connection") == "close":
                        break
        except ConnectionRefusedError:
            seen["refused"] += 1
        except ConnectionResetError:
            seen["reset"] += 1
        except ConnectionError as error:
            # an end without an answer
            seen["reset" if "closed" in str(error) else "broken"] += 1


def test_nobody_is_reset_while_the_service_ends(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(_SERVICE)
    seen: Counter[str] = Counter()
    for _ in range(_ENDS):
        with Bento(tmp_path) as bento:
            eventually(lambda: bento.answers("/livez") == 200, "it serves", START_S)
            over = Event()
            clients = [Thread(target=come_again_and_again, args=(bento, over, seen)) for _ in range(_CLIENTS)]
            for client in clients:
                client.start()
            try:
                eventually(lambda: seen["200"] > 0, "a client was answered")
                bento.terminate()
                bento.process.wait(STOP_S)
            finally:
                over.set()
                for client in clients:
                    client.join()
    assert seen["refused"], seen
    assert set(seen) <= {"200", "503", "refused"}, seen


def test_who_has_connected_before_the_end_is_served(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(_SERVICE)
    with Bento(tmp_path) as bento:
        eventually(lambda: bento.answers("/livez") == 200, "it serves", START_S)
        with bento.connect() as early, bento.connect() as late:
            bento.terminate()
            early.send(frame("GET", "/livez"))
            assert early.receive().status == 200
            # It brings no request, and hears of the end.
            assert late.is_closed()
        bento.process.wait(STOP_S)
        with socket.socket() as probe:
            assert probe.connect_ex(bento.address) != 0


def test_deaf_clients_do_not_keep_the_service_from_ending(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(_SERVICE)
    # Without an end it would be that time.
    with Bento(tmp_path, KUSHI_HTTP_BODY_TIMEOUT_SECS="600") as bento, ExitStack() as stack:
        eventually(lambda: bento.answers("/livez") == 200, "it serves", START_S)
        for _ in range(_CLIENTS):
            stack.enter_context(bento.connect()).send(frame("GET", "/large") * 100)
            listening = stack.enter_context(bento.connect())
            listening.send(upgrade(path="/pour"))
            assert listening.receive("HEAD").status == 101
        bento.terminate()
        bento.process.wait(STOP_S)
