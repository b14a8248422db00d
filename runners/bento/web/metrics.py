"""
What BentoML's metrics of requests are counted under: the paths that the service has.

BentoML takes the path that a client has sent. Each new one stays for as long as the service runs, in memory, on the
disk and on the page of the metrics, so that a client who makes them up fills all three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Match, Mount, Route, WebSocketRoute

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.routing import BaseRoute

    from .asgi import Application, Receive, Scope, Send

__all__ = ["Metrics"]

_OTHER: Final = "other"
"""The label of all paths that the service does not have"""
_SENT: Final = "kushi.path"


class Metrics:
    """In the place of BentoML's middleware, `counting`, which sees a label where the path of the request was"""

    def __init__(self, app: Application, *, counting: Any, **options: Any) -> None:  # noqa: ANN401 - BentoML's
        async def restored(scope: Scope, receive: Receive, send: Send) -> None:
            sent = scope.pop(_SENT, None)
            await app(scope if sent is None else {**scope, "path": sent}, receive, send)

        self._counting: Application = counting(restored, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The page of the metrics itself is found by its path, and a message of another kind has none.
        if scope["type"] in {"http", "websocket"} and scope["path"] != "/metrics":
            scope = {**scope, "path": _label(scope["app"].routes, scope) or _OTHER, _SENT: scope["path"]}
        await self._counting(scope, receive, send)


def _label(routes: Iterable[BaseRoute], scope: Scope) -> str | None:
    """As the route is written that takes this request; None where none does"""
    for route in routes:
        found, of_route = route.matches(scope)
        if found is Match.NONE:
            continue
        if isinstance(route, Route | WebSocketRoute):
            return route.path
        if isinstance(route, Mount):
            if not route.routes:
                # An application whose own paths nobody knows
                return f"{route.path}/*"
            within = _label(route.routes, {**scope, **of_route})
            if within is not None:
                return route.path + within
    return None
