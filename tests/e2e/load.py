"""Clients that ask again and again while something else happens, and remember how it went."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self

from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from tests.raw_http import Connection

__all__ = ["Load", "Outcome"]

_WAIT_S: Final = 20.0
_PAUSE_S: Final = 0.015


class Reachable(Protocol):
    """A service under test"""

    def connect(self, timeout: float) -> Connection: ...


@dataclass(frozen=True)
class Outcome:
    began: float
    seconds: float
    status: int
    """0 where no answer came"""
    started: bool
    """Whether some of an answer came"""
    first: bool
    """Whether the connection was new: then nobody may have accepted it"""


class Load:
    """One thread for each request that is given, each of which sends it again and again"""

    def __init__(self, bento: Reachable, requests: Sequence[bytes]) -> None:
        self._bento = bento
        self._stopped = threading.Event()
        self._outcomes: list[Outcome] = []
        self._refused = 0
        self._threads = [threading.Thread(target=self._ask, args=(request,)) for request in requests]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    @property
    def outcomes(self) -> list[Outcome]:
        return list(self._outcomes)

    @property
    def unconnected(self) -> int:
        """How often nobody listened"""
        return self._refused

    @property
    def slowest(self) -> float:
        """The longest that an answer has taken"""
        return max(outcome.seconds for outcome in self.outcomes)

    def waited_after(self, moment: float) -> float:
        """How long after that moment the last of the requests that were under way then was answered"""
        ends = [outcome.began + outcome.seconds for outcome in self.outcomes if outcome.began <= moment]
        return max(0.0, *(end - moment for end in ends))

    def until_answered(self, count: int = 50) -> None:
        """Comes back when so many more have been answered well"""
        wanted = self._answered() + count
        eventually(lambda: self._answered() >= wanted, f"{count} more are answered")

    def _answered(self) -> int:
        return sum(outcome.status == 200 for outcome in self.outcomes)

    def _ask(self, request: bytes) -> None:
        while not self._stopped.is_set():
            try:
                connection = self._bento.connect(_WAIT_S)
            except OSError:
                self._refused += 1
                self._stopped.wait(0.05)
                continue
            with connection:
                first = True
                while not self._stopped.is_set() and self._exchange(connection, request, first=first):
                    first = False
                    self._stopped.wait(_PAUSE_S)

    def _exchange(self, connection: Connection, request: bytes, *, first: bool) -> bool:
        began, status, kept = time.monotonic(), 0, False
        try:
            connection.send(request)
            answer = connection.receive()
            status, kept = answer.status, answer.header("connection") != "close"
        except OSError:
            pass
        started = status > 0 or connection.buffer != b""
        self._outcomes.append(Outcome(began, time.monotonic() - began, status, started, first))
        return kept
