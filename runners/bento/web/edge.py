"""
What stands before BentoML's own application: the protocol's routes, bounds on what is read, request ids, and the
worker's presence at its engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from _bentoml_sdk.service import Service
from starlette.exceptions import HTTPException

from ...client import Client
from ...settings import engine_elsewhere
from ..dependency import EngineDependency
from ..place import address_of
from ..presence import attend
from ..relay.exchange import Relay, refuse
from ..relay.origin import Origin
from ..relay.upstream import Upstreams
from ..relay.watch import Watch
from ..remote import tls_of
from .application import ApplicationFactory
from .joined import joined

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from .asgi import Application, Message, Receive, Scope, Send

__all__ = ["EdgeService"]

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
_PICKLE = b"application/vnd.bentoml+pickle"
_IDENTITY = re.compile(rb"[!-~]{1,128}")


class EdgeService(Service[Any]):
    """A BentoML service whose application has our edge before it"""

    max_body_bytes: int = MAX_BODY_BYTES

    @property
    def engines(self) -> list[EngineDependency]:
        return [found for found in self.dependencies.values() if isinstance(found, EngineDependency)]

    @property
    def origin(self) -> Origin | None:
        """The engine that the protocol's routes lead to"""
        return next((found.origin for found in self.engines if found.origin), None)

    def __call__(self) -> Any:  # noqa: ANN401 - an instance of the class
        for found in self.engines:
            found.forget_closed()
        return super().__call__()

    def to_asgi(self, is_main: bool = True) -> Application:  # noqa: FBT001, FBT002 - BentoML's signature
        self.inject_config()
        self._ask_in_json()
        application = ApplicationFactory(self, is_main=is_main)()
        presences = [found.place.presence for found in self.engines if found.place]
        return Edge(application, self.origin, presences, self.max_body_bytes)

    def _ask_in_json(self) -> None:
        """Services of BentoML's ask each other with pickle, which ours refuse: they are asked as clients ask them"""
        for found in self.dependencies.values():
            if isinstance(found.on, EdgeService) and not isinstance(found, EngineDependency):
                found.url = found.url or address_of(found.on.name)


class Edge:
    """The outermost ASGI application of a worker"""

    def __init__(
        self, application: Application, origin: Origin | None, presences: Sequence[Path], max_body_bytes: int
    ) -> None:
        self._application = application
        self._origin = origin
        self._presences = presences
        self._max_body_bytes = max_body_bytes
        self._relay: Relay | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            async with self._life():
                await self._application(scope, receive, _frozen(send))
        elif scope["type"] != "http":
            await self._application(scope, receive, send)
        elif self._origin and self._relay and _is_protocol(scope["path"]):
            await self._relay(self._origin.addressed(scope), receive, joined(send))
        else:
            await self._guarded(scope, receive, joined(send))

    @contextlib.asynccontextmanager
    async def _life(self) -> AsyncIterator[None]:
        """From before the application starts until after it has stopped"""
        present = [asyncio.create_task(attend(presence)) for presence in self._presences]
        try:
            if self._origin is None:
                yield
                return
            engine = engine_elsewhere(self._origin.url)
            with (
                contextlib.closing(Upstreams(self._origin.address, tls_of(engine))) as upstreams,
                contextlib.closing(Client(engine.url, **engine.options)) as client,
            ):
                self._relay = Relay(upstreams, Watch(client))
                yield
        finally:
            for task in present:
                task.cancel()

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        # All of several: which one BentoML heeds is not ours to guess.
        if any(name == b"content-type" and value.lower().startswith(_PICKLE) for name, value in scope["headers"]):
            return await refuse(send, 415, "pickle is not accepted: send JSON, multipart/form-data or the body itself")
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._max_body_bytes:
            return await refuse(send, 413, self._too_large())
        identity = headers.get(b"x-request-id", b"")
        if not _IDENTITY.fullmatch(identity):
            identity = uuid4().hex.encode()
            scope["headers"] = [*scope["headers"], (b"x-request-id", identity)]
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise HTTPException(413, self._too_large())
            return message

        async def identified(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", identity)]
            await send(message)

        await self._application(scope, counted, identified)
        return None

    def _too_large(self) -> str:
        return f"the body is larger than the {self._max_body_bytes} bytes that are accepted"


def _frozen(send: Send) -> Send:
    """
    What is there once the application has started stays. Without this the garbage collector looks through all of it
    again and again, and the requests of that moment wait.
    """

    async def sent(message: Message) -> None:
        if message["type"] == "lifespan.startup.complete":
            gc.freeze()
        await send(message)

    return sent


def _is_protocol(path: str) -> bool:
    """Whether the path is below /v2 for whoever reads it: a server elsewhere may take `..` for a step up"""
    parts = path.split("/")
    return parts[:2] == ["", "v2"] and ".." not in parts
