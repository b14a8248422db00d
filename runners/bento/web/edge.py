"""
What stands before BentoML's own application: the protocol's routes, bounds on what is read, request ids, and the
worker's presence at its engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import time
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import bentoml
from starlette.exceptions import HTTPException

from ...client import Client
from ...elsewhere import engine_elsewhere
from ...errors import KushiError
from ...settings import ServerSettings, read_settings
from ..dependency import EngineDependency
from ..internals.server import serve_with
from ..presence import attend
from ..relay.exchange import Relay
from ..relay.origin import Origin
from ..relay.watch import Watch
from ..watchdog import LEAST_SECONDS, patience_for, watched
from .application import ApplicationFactory
from .bodies import GIVE_UP_BODY, SPARE_BYTES, Bodies
from .handover import Handover
from .limits import MAX_MESSAGE_BYTES, MAX_WEBSOCKETS, Limits
from .refusal import refuse
from .serializers import REFUSAL, is_pickle, replace_serializers
from .server import Server
from .ways import Ways

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    import uvicorn

    from ..place import Place
    from ..relay.shortcut import Shortcut
    from .asgi import Application, Message, Receive, Scope, Send
    from .bodies import Body

__all__ = ["OPENAI", "Edge", "EdgeService", "openai_routes", "server_for"]

_LOG = logging.getLogger(__name__)
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
OPENAI: Final = ("/v1/models", "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank")
"""Routes of the engine beside the protocol's"""
_IDENTITY = re.compile(rb"[!-~]{1,128}")


class EdgeService(bentoml.Service[Any]):
    """A BentoML service whose application has our edge before it"""

    max_body_bytes: int = MAX_BODY_BYTES
    max_bodies_bytes: int = MAX_BODY_BYTES + SPARE_BYTES
    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_websockets: int = MAX_WEBSOCKETS

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
        replace_serializers()
        serve_with(server_for)
        application = ApplicationFactory(self, is_main=is_main)()
        settings = self._settings()
        places = [found.place for found in self.engines if found.place]
        patience = patience_for(self.config.get("traffic", {}).get("timeout") or 0)
        return Edge(
            application,
            self.origin,
            places,
            self.max_body_bytes,
            patience,
            limits=self._limits(settings),
            max_bodies_bytes=self.max_bodies_bytes,
            has_page=settings.engine.http.playground,
            openai=openai_routes(
                [path for _, path, _ in self.mount_apps],
                [f"{self.path_prefix}/{api.route}" for api in self.apis.values()],
            ),
        )

    @property
    def flags(self) -> Mapping[str, object]:
        """Those of the first engine of its own; none where all are elsewhere"""
        own = (found.on for found in self.engines if found.on is not None and not found.url)
        return next((engine.flags for engine in own), {})

    @property
    def limits(self) -> Limits:
        """As the flags of the engine and the variables say for its own port"""
        return self._limits(self._settings())

    def _limits(self, settings: ServerSettings) -> Limits:
        return Limits.of(settings, max_message_bytes=self.max_message_bytes, max_websockets=self.max_websockets)

    def _settings(self) -> ServerSettings:
        try:
            return read_settings(self.flags)
        except KushiError as error:
            # The engine does not start with it, and clients shall hear that it is not there.
            _LOG.error("%s: this worker goes on with the limits that are usual", error)
            return ServerSettings()

    def _ask_in_json(self) -> None:
        """Services of BentoML's ask each other with pickle, which ours do not speak: they ask as clients do"""
        for found in self.dependencies.values():
            if found.on is not None and not isinstance(found, EngineDependency):
                found.url = found.url or found.on.url


class Edge:
    """The outermost ASGI application of a worker"""

    def __init__(
        self,
        application: Application,
        origin: Origin | None,
        places: Sequence[Place],
        max_body_bytes: int,
        patience: int = LEAST_SECONDS,
        *,
        limits: Limits | None = None,
        max_bodies_bytes: int = MAX_BODY_BYTES + SPARE_BYTES,
        has_page: bool = False,
        openai: Sequence[str] = OPENAI,
    ) -> None:
        self.limits = limits or Limits()
        self._bodies = Bodies(max_bodies_bytes, self.limits.body_seconds, time.monotonic)
        self._application = application
        self._origin = origin
        self._places = places
        self._patience = patience
        self._max_body_bytes = max_body_bytes
        self._has_page = has_page
        self._openai = frozenset(openai)
        self._relay: Relay | None = None
        self._handover = Handover(origin.handover) if origin and origin.handover else None

    @property
    def shortcut(self) -> Shortcut | None:
        """For the ordinary ones of the protocol's requests, while the application runs"""
        return self._relay.shortcut if self._relay else None

    @property
    def handover(self) -> Handover | None:
        """For connections that speak gRPC, while the application runs"""
        return self._handover if self._relay else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            async with watched(self._patience) as watch, self._life():
                await self._application(scope, receive, _started(send, watch))
        elif scope["type"] != "http":
            await self._application(scope, receive, send)
        elif self._relay and self._is_of_engine(scope["path"]):
            await self._relay(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)

    def _is_of_engine(self, path: str) -> bool:
        is_openai = path in self._openai or (bool(self._openai) and _is_model_of_openai(path))
        return _is_protocol(path) or is_openai or (self._has_page and _is_page(path))

    @contextlib.asynccontextmanager
    async def _life(self) -> AsyncIterator[None]:
        """From before the application starts until after it has stopped"""
        present = [asyncio.create_task(attend(place, self._patience)) for place in self._places]
        try:
            if self._origin is None:
                yield
                return
            engine = engine_elsewhere(self._origin.url)
            with (
                contextlib.closing(Client(engine.url, **engine.options)) as client,
                contextlib.closing(Relay(self._origin, Watch(client), engine.files)) as relay,
            ):
                self._relay = relay
                yield
        finally:
            for task in present:
                task.cancel()

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        # All of several: which one BentoML heeds is not ours to guess.
        if any(name == b"content-type" and is_pickle(value) for name, value in scope["headers"]):
            return await refuse(send, 415, REFUSAL)
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._max_body_bytes:
            return await refuse(send, 413, self._too_large())
        identity = headers.get(b"x-request-id", b"")
        if not _IDENTITY.fullmatch(identity):
            identity = uuid4().hex.encode()
            scope["headers"] = [*scope["headers"], (b"x-request-id", identity)]
        with self._bodies.enter(scope.get("extensions", {}).get(GIVE_UP_BODY)) as body:
            if length.isdigit() and not self._bodies.have_place(int(length)):
                return await refuse(send, 503, self._bodies.refusal)
            await self._application(scope, self._counted(receive, body), _identified(send, identity))
        return None

    def _counted(self, receive: Receive, body: Body) -> Receive:
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            more = len(message.get("body", b""))
            received += more
            if received > self._max_body_bytes:
                raise HTTPException(413, self._too_large())
            if not body.take(more):
                raise HTTPException(503, self._bodies.refusal, {"retry-after": "1"})
            if not message.get("more_body", False):
                body.has_come()
            return message

        return counted

    def _too_large(self) -> str:
        return f"the body is larger than the {self._max_body_bytes} bytes that are accepted"


def openai_routes(mounted: Sequence[str], endpoints: Sequence[str]) -> Sequence[str]:
    """Those that the engine answers: none where an application of the service, or an endpoint, may be below /v1"""
    own = {tuple(filter(None, route.split("/")))[:1] for route in (*mounted, *endpoints)}
    return () if ("v1",) in own or any(not path.strip("/") for path in mounted) else OPENAI


def server_for(config: uvicorn.Config) -> Server | None:
    """Ours for an application with our edge; for any other, BentoML runs the one that it makes"""
    app: Any = config.app
    if not isinstance(app, Edge):
        return None
    return Server(config, app.limits, Ways(lambda: app.shortcut, lambda: app.handover))


def _identified(send: Send, identity: bytes) -> Send:
    async def identified(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", identity)]
        await send(message)

    return identified


def _started(send: Send, watch: Callable[[], None]) -> Send:
    """
    What is there once the application has started stays. Without this the garbage collector looks through all of it
    again and again, and the requests of that moment wait. From then on the event loop is watched.
    """

    async def sent(message: Message) -> None:
        if message["type"] == "lifespan.startup.complete":
            gc.freeze()
            watch()
        await send(message)

    return sent


def _is_protocol(path: str) -> bool:
    """Whether the path is below /v2 for whoever reads it: a server elsewhere may take `..` for a step up"""
    parts = path.split("/")
    return parts[:2] == ["", "v2"] and ".." not in parts


def _is_model_of_openai(path: str) -> bool:
    parts = path.split("/")
    return parts[:3] == ["", "v1", "models"] and ".." not in parts


def _is_page(path: str) -> bool:
    """Whether it is the engine's page, in the place of BentoML's, or a file of it"""
    return path == "/" or (path.startswith("/playground/") and ".." not in path)
