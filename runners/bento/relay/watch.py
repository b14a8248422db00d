"""Looks whether the engine lives, for as long as somebody waits for it"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...errors import AccessDenied, KushiError

if TYPE_CHECKING:
    from ...calls import Calls

__all__ = ["Watch"]

_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 0.6


class Watch:
    """One look serves all who wait"""

    def __init__(self, engine: Calls) -> None:
        self._engine = engine
        self._looking: asyncio.Task[None] | None = None
        self._waiting = 0

    async def until_silent(self) -> None:
        """Comes back when the engine does not answer"""
        self._waiting += 1
        try:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look())
            await asyncio.shield(self._looking)
        finally:
            self._waiting -= 1

    async def _look(self) -> None:
        while self._waiting:
            try:
                if not await self._engine.async_is_server_live(deadline=_ANSWER_SECONDS):
                    return
            except AccessDenied:
                # An engine that asks for a token lives.
                pass
            except KushiError:
                return
            await asyncio.sleep(_LOOK_SECONDS)
