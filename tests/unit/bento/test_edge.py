"""What stands before the application: no pickle, no body without end, an id for each request."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from runners.bento import service
from runners.bento.web.edge import OPENAI, Edge, openai_routes
from runners.bento.web.limits import Limits
from tests.unit.bento.asgi import Answer, Call, answering, ask

if TYPE_CHECKING:
    from starlette.requests import Request

    from runners.bento.web.asgi import Application

MOST = 100


def answered(call: Call, application: Application | None = None) -> Answer:
    return asyncio.run(ask(Edge(application or answering(), None, (), MOST), call))


async def _length(request: Request) -> JSONResponse:
    return JSONResponse(len(await request.body()))


READING = Starlette(routes=[Route("/", _length, methods=["POST"])])


@pytest.mark.parametrize("length", [0, 1, MOST])
def test_a_body_up_to_the_limit_is_read(length: int) -> None:
    call = Call(headers=[(b"content-length", b"%d" % length)], body=[bytes(length)])
    assert answered(call, READING).json() == length
    assert answered(Call(body=[b"a"] * length or [b""]), READING).json() == length


def test_a_body_that_is_said_to_be_larger_is_refused_unread() -> None:
    call = Call(headers=[(b"content-length", b"%d" % (MOST + 1))], body=[])
    answer = answered(call, READING)
    assert answer.status == 413
    assert answer.json() == {"error": f"the body is larger than the {MOST} bytes that are accepted"}


def test_a_body_that_turns_out_larger_is_refused() -> None:
    assert answered(Call(body=[b"a"] * (MOST + 1)), READING).status == 413


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("kind", [b"application/vnd.bentoml+pickle", b"Application/VND.bentoml+Pickle; a=b"])
def test_pickle_is_refused_wherever_it_stands(place: int, kind: bytes) -> None:
    headers = [(b"content-type", b"application/json")]
    headers.insert(place, (b"content-type", kind))
    assert answered(Call(headers=headers)).status == 415


def test_another_kind_of_body_is_let_through() -> None:
    assert answered(Call(headers=[(b"content-type", b"application/json")])).body == b"done"


@pytest.mark.parametrize("identity", [b"a", b"a" * 128, b"3f/../\"'<>"])
def test_the_id_comes_back(identity: bytes) -> None:
    assert answered(Call(headers=[(b"x-request-id", identity)])).headers["x-request-id"] == identity.decode()


@pytest.mark.parametrize("identity", [b"", b"a" * 129, b"a b", b"a\n", b"\r\na: b", b"\x7f", b"\xe9"])
def test_an_id_that_could_harm_is_replaced(identity: bytes) -> None:
    call = Call(headers=[(b"x-request-id", identity)])
    found = answered(call).headers["x-request-id"]
    assert re.fullmatch(r"[0-9a-f]{32}", found)
    # and the application is told of the new one
    assert dict(call.scope["headers"])[b"x-request-id"] == found.encode()


def test_without_an_engine_the_routes_of_the_protocol_are_the_applications() -> None:
    assert answered(Call("/v2/health/live")).body == b"done"


def test_what_is_no_request_goes_through() -> None:
    seen = []

    async def application(scope: dict[str, str], _receive: object, _send: object) -> None:
        seen.append(scope["type"])

    edge = Edge(application, None, (), MOST)  # type: ignore[arg-type] # of narrower types
    for kind in ("websocket", "lifespan"):
        call = Call()
        call.scope["type"] = kind
        asyncio.run(edge(call.scope, call.receive, call.send))
    assert seen == ["websocket", "lifespan"]


def test_limits_that_cannot_be_right_are_in_the_log_and_the_usual_ones_hold(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Empty:
        """Without endpoints"""

    monkeypatch.setenv("KUSHI_HTTP_MAX_HEADERS", "many")
    assert service(Empty).limits == Limits()
    wrong = "KUSHI_HTTP_MAX_HEADERS: expected an integer from 8 to 1024, got 'many'"
    assert caplog.messages == [f"{wrong}: this worker goes on with the limits that are usual"]


@pytest.mark.parametrize(
    ("mounted", "endpoints", "is_there"),
    [
        ([], ["/search"], True),
        (["/app"], ["/v10"], True),
        (["/v1"], [], False),
        (["/v1/models"], [], False),
        (["v1"], [], False),
        ([], ["/v1//embeddings"], False),
        (["/"], [], False),
        ([""], [], False),
        ([], ["/v1/embeddings"], False),
    ],
)
def test_what_a_service_has_below_v1_is_its_own(mounted: list[str], endpoints: list[str], is_there: bool) -> None:
    assert openai_routes(mounted, endpoints) == (OPENAI if is_there else ())
