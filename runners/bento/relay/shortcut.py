"""
An ordinary request for the engine, which lies there whole, or will at once: it is passed on as its client sent it, and
its answer goes to the client as it comes, in one piece each. No task, no ASGI.

Whatever is not ordinary is not taken, or is given back to be served as all others, with the exchange that was begun:
a request that another parser may read in another way, an answer that is a stream, a failure, and what takes long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from kushi_native import Exchange, Upstream

    from ..web.limits import Limits
    from .slow_requests import SlowRequests

__all__ = ["EXCHANGE", "MOST_BYTES", "Shortcut", "Taker"]

EXCHANGE: Final = "kushi.exchange"
"""The extension of an ASGI scope whose request was passed on already"""
MOST_BYTES: Final = 64 * 1024


class Taker(Protocol):
    """Who has a request passed on: one of the two is called, and is later than the begin"""

    def answered(self, data: bytes, /) -> None:
        """`data` is the whole answer, head and body"""

    def take_over(self) -> None:
        """The request has to be served as all others"""

    def became_slow(self) -> None:
        """It takes long"""


class Shortcut:
    """The ordinary way to one engine"""

    def __init__(self, upstream: Upstream, slow_requests: SlowRequests) -> None:
        self._upstream = upstream
        self._slow_requests = slow_requests
        self._headers: list[tuple[bytes, bytes]] = []
        self._lines = b""

    def begin(
        self, data: bytes, taker: Taker, limits: Limits, default_headers: list[tuple[bytes, bytes]]
    ) -> Exchange | int | None:
        """
        A number of bytes where so many are missing at the end; None where the request is not ordinary.
        default_headers: those of every answer
        """
        if default_headers is not self._headers:
            self._headers = default_headers
            self._lines = b"".join([b"%s: %s\r\n" % header for header in default_headers])
        begun = self._upstream.pass_on(data, taker, self._lines, limits.max_head_bytes, limits.max_headers)
        if isinstance(begun, int) and begun + len(data) > MOST_BYTES:
            return None
        if begun is not None:
            self._slow_requests.add(taker)
        return begun

    def end(self, taker: Taker) -> None:
        """It waits no more"""
        self._slow_requests.discard(taker)
