"""One request to an ASGI application, without a server in between."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.bento.web.asgi import Application, Message, Receive, Scope, Send

__all__ = ["Answer", "Call", "answering", "ask"]


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False

    def json(self) -> Any:  # noqa: ANN401 - a JSON document may be anything
        return json.loads(self.body)


class Call:
    """The three things that an application is called with"""

    def __init__(
        self,
        path: str = "/",
        *,
        method: str = "POST",
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: Sequence[bytes] = (b"",),
    ) -> None:
        self.scope: Scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": list(headers),
            "client": ("127.0.0.1", 1),
        }
        self.answer = Answer()
        self._pieces = list(body)
        self._gone = asyncio.Event()

    def leave(self) -> None:
        """The client goes away"""
        self._gone.set()

    async def receive(self) -> Message:
        if not self._pieces:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        piece = self._pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.answer.status = message["status"]
            self.answer.headers = {name.decode(): value.decode() for name, value in message.get("headers", ())}
        else:
            self.answer.body += message.get("body", b"")
            self.answer.complete = not message.get("more_body", False)


async def ask(application: Application, call: Call) -> Answer:
    await application(call.scope, call.receive, call.send)
    return call.answer


def answering(*, status: int = 200, body: bytes = b"done") -> Application:
    """An application that reads all and answers that"""

    async def application(_scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body", False):
            pass
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return application
