"""Objects into files: in parts, several at a time, each only while it is what was listed"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..wanted import check_wanted
from .store import StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .listing import Object
    from .store import Store

__all__ = ["download"]

_LOG = logging.getLogger(__name__)
_PART: Final = 8 * 1024 * 1024
_AT_A_TIME: Final = 8
_LOOK_SECONDS: Final = 0.2
_SAYS_SECONDS: Final = 2.0
_TRIES: Final = 3
_MEGABYTE: Final = 1_000_000


@dataclass(frozen=True)
class _Part:
    wanted: Object
    file: Path
    start: int
    end: int


def download(store: Store, what: str, files: Iterable[tuple[Object, Path]]) -> None:
    """Each object into a new file; `what` is how the log calls them. Raises at the first one that fails"""
    parts: deque[_Part] = deque()
    for wanted, file in files:
        file.unlink(missing_ok=True)
        with file.open("xb") as made:
            made.truncate(wanted.size)
        parts += _parts(wanted, file)
    fetch = _Fetch(store, parts)
    progress = _Progress(what, sum(part.end - part.start for part in parts))
    try:
        fetch.start()
        while not fetch.is_done(_LOOK_SECONDS):
            check_wanted()
            progress.say(fetch.bytes)
    finally:
        # those that go on write to files that nobody uses
        fetch.give_up()
    if fetch.failure:
        raise fetch.failure


class _Fetch:
    """Threads that fetch parts until there are none left, or one has failed"""

    def __init__(self, store: Store, parts: deque[_Part]) -> None:
        self._store, self._parts = store, parts
        self._left = len(parts)
        self._changed = threading.Condition()
        self._given_up = threading.Event()
        self.bytes = 0
        self.failure: BaseException | None = None

    def start(self) -> None:
        for index in range(min(_AT_A_TIME, self._left)):
            # the end of the process waits for none of them
            threading.Thread(target=self._work, name=f"kushi-fetch-{index}", daemon=True).start()

    def is_done(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._left or self.failure is not None, seconds)

    def give_up(self) -> None:
        self._given_up.set()

    def _work(self) -> None:
        while not self._given_up.is_set():
            try:
                part = self._parts.popleft()
            except IndexError:
                return
            failure: BaseException | None = None
            try:
                _write(part, self._read(part))
            except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
                failure = error
                self.give_up()
            with self._changed:
                self._left -= 1
                self.bytes += part.end - part.start
                self.failure = self.failure or failure
                self._changed.notify_all()

    def _read(self, part: _Part) -> memoryview:
        for attempt in range(1, _TRIES):
            try:
                return self._store.read(part.wanted, part.start, part.end)
            except StoreUnreachable as error:
                if self._given_up.wait(attempt):
                    raise
                _LOG.warning("%s; it is tried again", error)
        return self._store.read(part.wanted, part.start, part.end)


def _parts(wanted: Object, file: Path) -> Iterator[_Part]:
    for start in range(0, wanted.size, _PART):
        yield _Part(wanted, file, start, min(start + _PART, wanted.size))


def _write(part: _Part, content: memoryview) -> None:
    opened = os.open(part.file, os.O_WRONLY)
    try:
        at = part.start
        while content:
            written = os.pwrite(opened, content, at)
            at, content = at + written, content[written:]
    finally:
        os.close(opened)


class _Progress:
    """A line of the log every few seconds, of what takes longer"""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._started = self._said = time.monotonic()

    def say(self, done: int) -> None:
        now = time.monotonic()
        if now - self._said >= _SAYS_SECONDS:
            self._said = now
            rate = done / _MEGABYTE / (now - self._started)
            megabytes = f"{done / _MEGABYTE:.0f} of {self._total / _MEGABYTE:.0f} MB"
            _LOG.info("fetching '%s': %s, %.0f MB/s", self._what, megabytes, rate)
