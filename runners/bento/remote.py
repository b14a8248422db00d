"""
A Client of an engine on another host. What `unix://` does by itself is done here for HTTP too: calls that wait fail
within a second when the engine stands still.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..client import Client
from ..errors import ConnectionLost
from ..settings import engine_elsewhere
from .relay.lingering import Lingering
from .relay.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kushi_native import Result
    from numpy.typing import ArrayLike

    from ..settings import Elsewhere

__all__ = ["RemoteClient", "tls_of"]


def tls_of(engine: Elsewhere) -> ssl.SSLContext | None:
    """What the relay speaks TLS with, where its url asks for it"""
    if not engine.url.strip().lower().startswith("https:"):
        return None
    context = ssl.create_default_context(cafile=engine.ca_cert)
    context.set_alpn_protocols(["http/1.1"])
    if engine.client_cert:
        context.load_cert_chain(engine.client_cert, engine.client_key)
    return context


class RemoteClient(Client):
    """Watches awaited inference that takes long; what blocks a thread is bounded by its deadline alone"""

    def __init__(self, url: str) -> None:
        options = engine_elsewhere(url).options
        super().__init__(url, **options)
        # with connections of its own: those of the calls may all be taken
        self._asking = Client(url, **options)
        self._watched: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Lingering, Watch]] = WeakKeyDictionary()

    def async_infer(
        self,
        model: str,
        /,
        *inputs: ArrayLike | Mapping[str, ArrayLike],
        **options: Any,  # noqa: ANN401 - those of Client
    ) -> asyncio.Future[Result]:
        future = super().async_infer(model, *inputs, **options)
        loop = future.get_loop()
        if loop not in self._watched:
            self._watched[loop] = Lingering(), Watch(self._asking)
        lingering, watch = self._watched[loop]
        call = _Call(future, watch, f"the engine at {self.url} stands still")
        lingering.add(call)
        future.add_done_callback(lambda _: lingering.discard(call))
        return future

    def close(self) -> None:
        super().close()
        self._asking.close()


class _Call:
    def __init__(self, future: asyncio.Future[Result], watch: Watch, text: str) -> None:
        self._future = future
        self._watch = watch
        self._text = text

    def linger(self) -> None:
        watching = asyncio.create_task(self._until_silent())
        self._future.add_done_callback(lambda _: watching.cancel())

    async def _until_silent(self) -> None:
        await self._watch.until_silent()
        if not self._future.done():
            self._future.set_exception(ConnectionLost(self._text))
