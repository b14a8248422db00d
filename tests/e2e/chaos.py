"""Processes of a service die and stand still at random, under load, and every answer is checked.

A request asks for the sum of numbers that no other one has. It ends well with that sum, ends badly with an error or
with the end of its connection, and anything else is wrong: another sum, a word without a reason, a second answer,
silence.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, Final

from tests.contract import requests
from tests.contract.requests import Infer, Output, Tensor
from tests.raw_http import frame
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.bento import Bento
    from tests.raw_http import Connection, Response

__all__ = ["Chaos", "Fault", "Report"]

SERVICE: Final = "Reader"
ENGINE_SERVICE: Final = "Models"
WORKERS: Final = 2
ROUTES: Final = "/v2", "/add"
CLIENTS: Final = 4
"""Of each route"""
END_S: Final = 20.0
WHOLE_S: Final = 45.0
_PAUSE_S: Final = 0.01
_SOON_S: Final = 0.3
_REQUESTS: Final = 50
"""On a connection: a new worker gets new ones"""
_BETWEEN_S: Final = (1.5, 5.0)
_FROZEN_S: Final = (0.3, 4.0)
_ROW: Final = 16
_ERRORS: Final = {500, 502, 503, 504}


@dataclass(frozen=True)
class Fault:
    """What was done to whom"""

    moment: float
    kind: str
    pid: int
    alone: bool
    """Whether nothing else was amiss"""

    def __str__(self) -> str:
        return self.kind if self.alone else f"{self.kind}, beside another fault"


@dataclass
class Report:
    """What clients saw. Moments are monotonic"""

    began: float
    ended: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    good: dict[str, list[float]] = field(default_factory=lambda: {route: [] for route in ROUTES})
    """When a right answer came"""
    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    longest_wait: float = 0.0
    """Of a request, for its end, whichever it was"""

    def longest_gap(self) -> float:
        """The longest time in which a route had no good answer"""
        return max(end - begin for begin, end in self._gaps())

    def gaps_by_kind(self) -> dict[str, list[float]]:
        """For each fault, the longest time without a good answer that began before the next fault and ended after it"""
        found: dict[str, list[float]] = {}
        ends = [fault.moment for fault in self.faults[1:]] + [self.ended]
        for fault, until in zip(self.faults, ends, strict=True):
            gaps = [end - begin for begin, end in self._gaps() if begin < until and end > fault.moment]
            found.setdefault(str(fault), []).append(max(gaps))
        return found

    def _gaps(self) -> Iterator[tuple[float, float]]:
        for moments in self.good.values():
            yield from pairwise([self.began, *sorted(moments), self.ended])


class Chaos:
    """Faults at random for some time; the same seed does the same to the same kinds of processes"""

    def __init__(self, bento: Bento, seed: int, progress: Callable[[str], None] = lambda _: None) -> None:
        self._bento = bento
        self._random = random.Random(seed)
        self._progress = progress
        self._numbers = count(1)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._frozen: dict[int, float] = {}
        self._kinds: dict[str, Callable[[], list[int]]] = {
            "engine": bento.engines,
            "worker": lambda: bento.workers(SERVICE),
            "keeper": lambda: bento.workers(ENGINE_SERVICE),
        }

    def run(self, seconds: float) -> Report:
        """Comes back with the service whole again"""
        self._report = Report(time.monotonic())
        threads = [threading.Thread(target=self._ask, args=(route,)) for route in ROUTES * CLIENTS]
        for thread in threads:
            thread.start()
        try:
            self._make_faults(time.monotonic() + seconds)
            eventually(self._is_whole, "the service is whole again", WHOLE_S)
        finally:
            self._report.ended = time.monotonic()
            self._stopped.set()
            for thread in threads:
                thread.join()
        return self._report

    def _is_whole(self) -> bool:
        """All processes are there and run, each has come so far that it serves, and all routes are answered"""
        found = [pids() for pids in self._kinds.values()]
        if list(map(len, found)) != [1, WORKERS, 1] or self._frozen:
            return False
        if not all(map(self._bento.attends, [pid for pids in found[1:] for pid in pids])):
            return False
        with self._lock:
            return all(time.monotonic() - moments[-1] < _SOON_S for moments in self._report.good.values() if moments)

    # --- faults ---

    def _make_faults(self, end: float) -> None:
        begin = time.monotonic()
        # The same numbers for the same seed, whatever happens
        while (moment := begin + self._random.uniform(*_BETWEEN_S)) < end:
            name, freezes = self._random.choice(list(self._kinds)), self._random.random() < 0.5
            place, frozen_s = self._random.random(), self._random.uniform(*_FROZEN_S)
            self._sleep_until(moment)
            if pids := self._kinds[name]():
                pid = sorted(pids)[int(place * len(pids))]
                kind = f"{name} {'frozen' if freezes else 'killed'}"
                fault = Fault(time.monotonic(), kind, pid, self._is_whole())
                self._report.faults.append(fault)
                self._progress(f"{fault.moment - self._report.began:5.1f} s: {fault}, process {pid}")
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP if freezes else signal.SIGKILL)
                if freezes:
                    self._frozen[pid] = time.monotonic() + frozen_s
            begin = moment
        self._sleep_until(end)
        self._thaw(float("inf"))

    def _sleep_until(self, moment: float) -> None:
        while (now := time.monotonic()) < moment:
            self._thaw(now)
            time.sleep(min(0.05, moment - now))

    def _thaw(self, now: float) -> None:
        for pid in [pid for pid, until in self._frozen.items() if until <= now]:
            del self._frozen[pid]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    # --- clients ---

    def _ask(self, route: str) -> None:
        while not self._stopped.is_set():
            try:
                connection = self._bento.connect(END_S)
            except OSError:
                self._end("no connection")
                self._stopped.wait(_PAUSE_S)
                continue
            with connection:
                for _ in range(_REQUESTS):
                    if not self._exchange(connection, route) or self._stopped.wait(_PAUSE_S):
                        break

    def _exchange(self, connection: Connection, route: str) -> bool:
        """Whether the connection may go on"""
        number = next(self._numbers)
        began = time.monotonic()
        try:
            connection.send(_request(route, number))
            answer = connection.receive()
        except TimeoutError:
            self._end(f"{route}: silence", f"{route}, number {number}: no end within {END_S} s")
            return False
        except OSError:
            self._end(f"{route}: closed", waited=time.monotonic() - began)
            return False
        waited = time.monotonic() - began
        reason = _wrong(route, number, answer)
        if connection.buffer:
            reason = f"more than one answer: {connection.buffer[:200]!r}"
        if reason:
            self._end(f"{route}: wrong", f"{route}, number {number}: {reason}")
            return False
        with self._lock:
            if answer.status == 200:
                self._report.good[route].append(time.monotonic())
        self._end(f"{route}: {answer.status}", waited=waited)
        return answer.header("connection") != "close"

    def _end(self, kind: str, wrong: str | None = None, waited: float = 0.0) -> None:
        with self._lock:
            self._report.ends[kind] += 1
            self._report.longest_wait = max(self._report.longest_wait, waited)
            if wrong:
                self._report.wrong.append(wrong)


def _request(route: str, number: int) -> bytes:
    if route == "/add":
        body = json.dumps({"one": number, "other": 2 * number}).encode()
        return frame("POST", route, [("content-type", "application/json")], body)
    tensors = [
        Tensor(name, "INT32", (1, _ROW), raw=struct.pack(f"<{_ROW}i", *(factor * number + at for at in range(_ROW))))
        for name, factor in (("INPUT0", 1), ("INPUT1", 2))
    ]
    headers, body = requests.body(Infer("add_sub", tensors, [Output("OUTPUT0", binary=True)], id=str(number)))
    return frame("POST", requests.path("add_sub"), headers, body)


def _wrong(route: str, number: int, answer: Response) -> str | None:
    """What is not as it has to be"""
    if answer.status != 200:
        if answer.status not in _ERRORS:
            return f"status {answer.status}: {answer.body[:200]!r}"
        return None if _has_reason(answer) else f"status {answer.status} without a reason: {answer.body[:200]!r}"
    if route == "/add":
        return None if answer.json() == 3 * number else f"{answer.body[:200]!r}"
    expected = struct.pack(f"<{_ROW}i", *(3 * number + 2 * at for at in range(_ROW)))
    if answer.infer_json.get("id") != str(number) or answer.binary != expected:
        return f"{answer.body[:400]!r}"
    return None


def _has_reason(answer: Response) -> bool:
    try:
        found: Any = answer.json()
    except ValueError:
        return False
    return isinstance(found, dict) and bool(found.get("error"))
