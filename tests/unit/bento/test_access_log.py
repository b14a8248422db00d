"""One line of plain JSON for each request, whatever it asks for and however it ends."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from runners.bento.web.access_log import AccessLog
from tests.unit.bento.asgi import Call, answering, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runners.bento.web.asgi import Receive, Scope, Send


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Gives the lines to caplog, since nobody else gets them"""
    AccessLog(answering())
    log = logging.getLogger("kushi.access")
    log.addHandler(caplog.handler)
    yield
    log.removeHandler(caplog.handler)


def last(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(caplog.messages[-1])
    return line


@pytest.mark.usefixtures("lines")
def test_a_line_says_what_came_and_what_went(caplog: pytest.LogCaptureFixture) -> None:
    headers = [(b"content-length", b"3"), (b"x-request-id", b"mine")]
    asyncio.run(ask(AccessLog(answering(status=404, body=b"nothing")), Call("/a", headers=headers, body=[b"abc"])))
    line = last(caplog)
    assert line["ms"] >= 0
    found = {name: line[name] for name in ("client", "method", "path", "status", "received", "sent", "request_id")}
    assert found == {
        "client": "127.0.0.1",
        "method": "POST",
        "path": "/a",
        "status": 404,
        "received": 3,
        "sent": 7,
        "request_id": "mine",
    }


@pytest.mark.usefixtures("lines")
def test_what_a_client_chooses_stays_within_its_line(caplog: pytest.LogCaptureFixture) -> None:
    path = '/\n{"forged": true}\u2028"'
    asyncio.run(ask(AccessLog(answering()), Call(path)))
    assert len(caplog.messages) == 1
    assert len(caplog.messages[0].splitlines()) == 1
    assert last(caplog)["path"] == path


@pytest.mark.usefixtures("lines")
def test_paths_that_are_left_out_have_no_line(caplog: pytest.LogCaptureFixture) -> None:
    application = AccessLog(answering(), skip_paths=("/metrics", "/livez"))
    for path in ("/metrics", "/livez"):
        asyncio.run(ask(application, Call(path)))
    assert caplog.messages == []


@pytest.mark.usefixtures("lines")
def test_a_request_without_an_answer_has_a_line_too(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(ask(AccessLog(broken), Call("/broken")))
    assert (last(caplog)["path"], last(caplog)["status"]) == ("/broken", 0)
