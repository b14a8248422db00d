"""
A Client of an engine on another host. What `unix://` does by itself is done here for HTTP too: calls that wait fail
within a second when the engine stands still.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..client import Client
from ..elsewhere import engine_elsewhere
from ..errors import ConnectionLost
from .relay.slow_requests import SlowRequests
from .relay.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kushi_native import Result
    from numpy.typing import ArrayLike


__all__ = ["RemoteClient"]


class RemoteClient(Client):
    """Watches awaited inference that takes long; what blocks a thread is bounded by its deadline alone"""

    def __init__(self, url: str) -> None:
        options = engine_elsewhere(url).options
        super().__init__(url, **options)
        # with connections of its own: those of the calls may all be taken
        self._asking = Client(url, **options)
        self._watched: dict[asyncio.AbstractEventLoop, tuple[SlowRequests, Watch]] = {}

    def async_infer(
        self,
        model: str,
        /,
        *inputs: ArrayLike | Mapping[str, ArrayLike],
        **options: Any,  # noqa: ANN401 - those of Client
    ) -> asyncio.Future[Result]:
        future = super().async_infer(model, *inputs, **options)
        loop = future.get_loop()
        watched = self._watched.get(loop)
        if watched is None:
            # What belongs to a loop holds it, so that no weak reference would let it go. Other loops, on other threads,
            # may do the same now.
            for known in [known for known in list(self._watched) if known.is_closed()]:
                self._watched.pop(known, None)
            watched = self._watched[loop] = SlowRequests(), Watch(self._asking)
        slow, watch = watched
        call = _Call(future, watch, f"the engine at {self.url} stands still")
        slow.add(call)
        future.add_done_callback(lambda _: slow.discard(call))
        return future

    def close(self) -> None:
        super().close()
        self._asking.close()


class _Call:
    def __init__(self, future: asyncio.Future[Result], watch: Watch, text: str) -> None:
        self._future = future
        self._watch = watch
        self._text = text

    def became_slow(self) -> None:
        watching = asyncio.create_task(self._until_silent())
        self._future.add_done_callback(lambda _: watching.cancel())

    async def _until_silent(self) -> None:
        await self._watch.until_silent()
        if not self._future.done():
            self._future.set_exception(ConnectionLost(self._text))
