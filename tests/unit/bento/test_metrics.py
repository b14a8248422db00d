"""Under which labels requests are counted: the paths of the service, and one for all others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute

from runners.bento.web.metrics import Metrics
from tests.unit.bento.asgi import Call, answering, ask

if TYPE_CHECKING:
    from starlette.requests import Request

    from runners.bento.web.asgi import Application, Receive, Scope, Send


async def answer(_: Request) -> PlainTextResponse:
    return PlainTextResponse("")


ROUTES = [
    Route("/items/{number}", answer),
    WebSocketRoute("/events", answer),
    Mount("/inner", routes=[Route("/{name}", answer)]),
    Mount("/outer", app=answering()),
]


class Counting:
    """In the place of BentoML's middleware"""

    labels: list[str]

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.labels.append(scope["path"])
        await self._app(scope, receive, send)


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/items/1", "/items/{number}"),
        ("/items/2", "/items/{number}"),
        ("/inner/a", "/inner/{name}"),
        ("/inner/a/b", "other"),
        ("/outer/a/b", "/outer/*"),
        ("/made/up", "other"),
        ("/metrics", "/metrics"),
    ],
)
def test_a_request_is_counted_under_the_path_of_its_route(path: str, label: str) -> None:
    assert labelled(Call(path, method="GET")) == (label, path)


def test_a_websocket_is_counted_under_its_path() -> None:
    opened = Call("/events")
    opened.scope["type"] = "websocket"
    assert labelled(opened) == ("/events", "/events")


def labelled(asked: Call) -> tuple[str, str]:
    """The label, and the path that the application sees"""
    seen: list[str] = []
    counting: Any = type("Counting", (Counting,), {"labels": []})

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["path"])
        await answering()(scope, receive, send)

    asked.scope["app"] = Starlette(routes=ROUTES)
    asyncio.run(ask(Metrics(application, counting=counting), asked))
    return counting.labels[0], seen[0]
