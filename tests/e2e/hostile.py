"""Clients of the protocol on a Bento's port that ask in every way, and know what must come back."""

from __future__ import annotations

import random
import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output
from tests.raw_http import Connection, chunked, frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.raw_http import Address, Headers, Response

__all__ = ["Hostile"]

PATH: Final = requests.path("add_sub")
UNKNOWN: Final = requests.path("nothing")
# What a server would take for a request, should it lose count of a body.
SMUGGLED: Final = frame("POST", PATH, *requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")], id="evil")))
PAUSE_S: Final = 0.02


class Hostile:
    """One client after another, each on a connection of its own, until it is time"""

    def __init__(self, address: Address, seed: int, ends_at: float, timeout: float) -> None:
        self._address = address
        self._chance = random.Random(seed)
        self._ends_at = ends_at
        self._timeout = timeout
        self._number = 0
        self._seed = seed
        self.asked: dict[str, int] = {}

    def run(self) -> None:
        ways: list[Callable[[Connection], None]] = [
            *(self.whole, self.in_pieces, self.in_chunks, self.pipelined, self.with_trailers, self.with_upgrade),
            *(self.refused_early, self.refused_unheard, self.half, self.broken_framing, self.leaving, self.deaf),
        ]
        while time.monotonic() < self._ends_at:
            way = self._chance.choice(ways)
            self.asked[way.__name__] = self.asked.get(way.__name__, 0) + 1
            with Connection(self._address, self._timeout) as connection:
                for _ in range(self._chance.randrange(1, 4)):
                    # Connections may be ended after what is no HTTP; wrong answers may not come.
                    try:
                        way(connection)
                    except ConnectionError:
                        break

    # --- ways to ask ---

    def whole(self, connection: Connection) -> None:
        identity, headers, body = self._request()
        check(connection.ask("POST", PATH, headers, body), identity)

    def in_pieces(self, connection: Connection) -> None:
        identity, headers, body = self._request()
        request = frame("POST", PATH, headers, body)
        for piece in self._cut(request):
            connection.send(piece)
            self._pause()
        check(connection.receive(), identity)

    def in_chunks(self, connection: Connection) -> None:
        identity, headers, body = self._request()
        request = frame("POST", PATH, [*headers, ("transfer-encoding", "chunked")], chunked(self._cut(body)))
        for piece in self._cut(request):
            connection.send(piece)
            self._pause()
        check(connection.receive(), identity)

    def pipelined(self, connection: Connection) -> None:
        asked = [self._request() for _ in range(self._chance.randrange(2, 8))]
        parts = []
        for _, headers, body in asked:
            parts.append(frame("POST", PATH, headers, body))
            parts.append(frame("POST", UNKNOWN, headers, body))
        connection.send(b"".join(parts))
        for identity, _, _ in asked:
            check(connection.receive(), identity)
            assert connection.receive().status == 404

    def with_trailers(self, connection: Connection) -> None:
        identity, headers, body = self._request()
        trailer = self._chance.choice(("content-encoding: gzip", f"{requests.HEADER_LENGTH}: 3", "x-late: 1"))
        rest = chunked(self._cut(body))[:-2] + trailer.encode() + b"\r\n\r\n"
        request = frame("POST", PATH, [*headers, ("transfer-encoding", "chunked")], rest)
        connection.send(request)
        check(connection.receive(), identity)

    def with_upgrade(self, connection: Connection) -> None:
        identity, headers, body = self._request()
        upgrade = [("connection", "Upgrade"), ("upgrade", "h2c")]
        path = self._chance.choice((PATH, UNKNOWN))
        connection.send(frame("POST", path, [*headers, *upgrade], body if path == PATH else SMUGGLED))
        answer = connection.receive()
        if path == PATH:
            check(answer, identity)
        else:
            assert answer.status == 404, answer

    def refused_early(self, connection: Connection) -> None:
        headers: Headers = [("connection", self._chance.choice(("keep-alive", "content-length", "te")))]
        answer = connection.ask("POST", UNKNOWN, headers, SMUGGLED * self._chance.randrange(1, 400))
        assert answer.status == 404, answer

    def refused_unheard(self, connection: Connection) -> None:
        connection.send(frame("POST", PATH, [("content-length", "999999999999")]))
        assert connection.receive().status == 400
        raise ConnectionError("nothing else can be sent on it")

    def half(self, connection: Connection) -> None:
        _, headers, body = self._request()
        path = self._chance.choice((PATH, UNKNOWN))
        request = frame("POST", path, [*headers, ("content-length", str(len(body) + 100_000))], body)
        connection.send(request[: self._chance.randrange(len(request))])
        self._pause()
        raise ConnectionError("it leaves")

    def broken_framing(self, connection: Connection) -> None:
        framing = self._chance.choice(
            (
                [("content-length", "3"), ("content-length", "4")],
                [("content-length", "3"), ("transfer-encoding", "chunked")],
                [("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
                [("transfer-encoding", "identity")],
                [("content-length", "-3")],
            )
        )
        connection.send(frame("POST", UNKNOWN, framing, SMUGGLED))
        for answer in self._rest(connection):
            # What came behind the head may have been a request of its own: then it was this client's.
            assert answer.status in {200, 400, 404, 408, 411, 413}, answer
        raise ConnectionError("nothing else can be sent on it")

    def leaving(self, connection: Connection) -> None:
        _, headers, body = self._request()
        connection.send(frame("POST", PATH, headers, body))
        if self._chance.random() < 0.5:
            reset(connection.socket)
        raise ConnectionError("it leaves")

    def deaf(self, connection: Connection) -> None:
        """Asks and asks, and leaves with half of an answer"""
        _, headers, body = self._request()
        connection.send(frame("POST", PATH, headers, body) * 20)
        connection.socket.recv(self._chance.randrange(1, 500))
        raise ConnectionError("it leaves")

    # --- means ---

    def _request(self) -> tuple[str, Headers, bytes]:
        self._number += 1
        identity = f"{self._seed}-{self._number}"
        return identity, *requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")], id=identity))

    def _cut(self, whole: bytes) -> list[bytes]:
        cuts = sorted(self._chance.randrange(len(whole)) for _ in range(self._chance.randrange(1, 5)))
        pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        return [piece for piece in pieces if piece]

    def _pause(self) -> None:
        if self._chance.random() < 0.3:
            time.sleep(self._chance.random() * PAUSE_S)

    def _rest(self, connection: Connection) -> Iterator[Response]:
        connection.finish_sending()
        with suppress(ConnectionError, TimeoutError):
            while not connection.is_closed():
                yield connection.receive()


def check(answer: Response, identity: str) -> None:
    """It is the answer to that request"""
    assert answer.status == 200, answer
    assert answer.json()["id"] == identity, (answer, identity)


def reset(connection: socket.socket) -> None:
    """Its end will be an abrupt one"""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
