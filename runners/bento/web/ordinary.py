"""
The requests of one connection that take the shortcut, one at a time. What cannot take it, or cannot stay on it, is
given back to be read as all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..relay.shortcut import MOST_BYTES

if TYPE_CHECKING:
    from kushi_native import Exchange

    from ..relay.shortcut import Shortcut
    from .limits import Limits

__all__ = ["OrdinaryRequests"]


class Client(Protocol):
    """The connection that they come on"""

    limits: Limits

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]: ...

    def is_ordinary(self) -> bool:
        """Whether nothing of the connection itself keeps a request from the shortcut"""

    def read(self, data: bytes) -> None:
        """As it reads all else"""

    def write_answer(self, data: bytes) -> None: ...


class OrdinaryRequests:
    """None of them is under way, or one is"""

    __slots__ = ("_client", "_data", "_exchange", "_missing", "_shortcut")

    def __init__(self, client: Client, shortcut: Shortcut | None) -> None:
        self._client = client
        self._shortcut = shortcut
        self._exchange: Exchange | None = None
        # the bytes of the one that is under way, and how many of them are to come
        self._data = b""
        self._missing = 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._exchange or self._missing)

    def begin(self, data: bytes) -> bool:
        """Whether it takes the shortcut"""
        if self._shortcut is None or len(data) > MOST_BYTES or not self._client.is_ordinary():
            return False
        begun = self._shortcut.begin(data, self, self._client.limits, self._client.default_headers)
        if begun is None:
            return False
        self._data = data
        if isinstance(begun, int):
            self._missing = begun
        else:
            self._missing = 0
            self._exchange = begun
        return True

    def go_on(self, data: bytes) -> bool:
        """Whether that was the rest of the one that is under way; otherwise that one is given back before it"""
        if self._missing and len(data) <= self._missing and self.begin(self._data + data):
            return True
        self.take_over()
        return False

    def answered(self, data: bytes) -> None:
        if self._exchange is None or self._shortcut is None:
            return
        self._exchange = None
        self._data = b""
        self._shortcut.end(self)
        self._client.write_answer(data)

    def take_over(self) -> None:
        if self._shortcut is None or not self.is_under_way:
            return
        self._shortcut.end(self)
        data, self._data, self._missing = self._data, b"", 0
        if self._exchange is not None:
            self._exchange.hold()
        self._client.read(data)
        # The parser has refused it.
        self.end()

    def became_slow(self) -> None:
        self.take_over()

    def take_exchange(self) -> Exchange | None:
        """That of the request which is being given back, if it was begun"""
        exchange, self._exchange = self._exchange, None
        return exchange

    def end(self) -> None:
        """Nobody waits for an answer any more"""
        exchange, self._missing = self.take_exchange(), 0
        if self._shortcut is not None:
            self._shortcut.end(self)
        if exchange is not None:
            exchange.close()
