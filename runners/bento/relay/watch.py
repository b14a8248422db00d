"""
Looks whether the engine lives, for as long as somebody waits for it. One silence may be a packet that was lost on the
way, or the handshake of TLS on a busy machine: only the second one in a row counts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...errors import AccessDenied, KushiError

if TYPE_CHECKING:
    from ...calls import Calls

__all__ = ["Watch"]

_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 0.6
_SILENT_LOOKS = 2


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
        silent = 0
        while self._waiting:
            silent = 0 if await self._is_live() else silent + 1
            if silent == _SILENT_LOOKS:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _is_live(self) -> bool:
        try:
            return await self._engine.async_is_server_live(deadline=_ANSWER_SECONDS)
        except AccessDenied:
            # An engine that asks for a token lives.
            return True
        except KushiError:
            return False
