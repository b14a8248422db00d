"""What clients hear for whom a worker has no room. Who asks for its health is served all the same"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .refusal import refuse

if TYPE_CHECKING:
    from .asgi import Application, Receive, Scope, Send

__all__ = ["FULL", "no_room", "no_room_for_websockets", "tells_of_health"]

FULL: Final = "the worker has as many connections as it serves: try again later"
_HEALTH: Final = frozenset({"/livez", "/readyz", "/healthz"})
_HEALTH_OF_THE_ENGINE: Final = "/v2/health/"
_TRY_AGAIN_LATER: Final = 1013


def tells_of_health(path: str) -> bool:
    return path in _HEALTH or path.startswith(_HEALTH_OF_THE_ENGINE)


async def no_room(_scope: Scope, _receive: Receive, send: Send) -> None:
    """The application of a request"""
    await refuse(send, 503, FULL)


def no_room_for_websockets(most: int) -> Application:
    """The application of one more than `most`"""

    async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
        reason = f"this worker has {most} WebSockets, as many as it serves: try again later"
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER, "reason": reason})

    return application
