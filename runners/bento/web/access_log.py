"""One line of JSON for each request"""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .asgi import Application, Message, Receive, Scope, Send

__all__ = ["AccessLog"]

# What a client makes up is not to fill the log.
_MOST_PATH_CHARACTERS: Final = 256


class AccessLog:
    """In the place of BentoML's middleware, and called as that is"""

    def __init__(self, app: Application, *, skip_paths: tuple[str, ...] = (), **_: bool) -> None:
        self._app = app
        self._skipped = tuple(skip_paths)
        self._log = _access_log()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(self._skipped):
            return await self._app(scope, receive, send)
        began = time.perf_counter()
        status = length = 0

        async def sent(message: Message) -> None:
            nonlocal status, length
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                length += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            if self._log.isEnabledFor(logging.INFO):
                headers = dict(scope["headers"])
                client = scope.get("client")
                line = {
                    "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    "client": client[0] if client else "",
                    "method": scope["method"],
                    "path": scope["path"][:_MOST_PATH_CHARACTERS],
                    "status": status,
                    "received": int(headers.get(b"content-length", 0)),
                    "sent": length,
                    "ms": round((time.perf_counter() - began) * 1e3, 3),
                    "request_id": headers.get(b"x-request-id", b"").decode("latin-1"),
                }
                self._log.info("%s", json.dumps(line))
        return None


def _access_log() -> logging.Logger:
    """Its lines are JSON and nothing else: BentoML's handlers would write around them"""
    log = logging.getLogger("kushi.access")
    if not log.handlers:
        log.addHandler(logging.StreamHandler(sys.stdout))
        log.setLevel(logging.INFO)
        log.propagate = False
    return log
