"""What polling remembers of a model, and of a repository, from look to look"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import KushiError
from ..repository.contents import DOUBT_NS, MOST
from ..repository.layout import places

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..buckets.bucket import Bucket
    from ..repository.contents import Contents
    from .watched import Watched

__all__ = ["PolledFolder", "PolledModel", "polled"]

_LOG = logging.getLogger(__name__)
_LONGEST_WAIT_SECONDS: Final = 60.0
_PATIENCE_WITH_STORE_SECONDS: Final = 5.0


@dataclass
class PolledModel:
    """One that is polled"""

    files: Watched
    failures: int = 0
    """Of loads of the same files, one after another"""
    next_try: float | None = None
    tried_with: Mapping[str, int] | None = None
    """Of an ensemble: the changes of its models before it was carried out last"""
    same: tuple[Contents, Contents] | None = None
    """Two that were compared, and in which the same lay"""
    in_vain: Contents | None = None
    """What was read last, and refused for the same reason as what was read before"""
    replaced_since: float | None = None
    """When its files were others than those of the load that goes on"""
    told: str = ""
    """The file that was said to be written"""
    is_large: bool = False
    """It was said that not all of its files are looked at"""

    def is_due(self, now: float, seconds: float) -> bool:
        """Whether a load that has failed is tried again"""
        if self.next_try is None:
            self.failures += 1
            # no longer wait than the longest, however many there were
            self.next_try = now + min(seconds * 2 ** min(self.failures, 16), max(seconds, _LONGEST_WAIT_SECONDS))
        return now >= self.next_try

    def is_well(self) -> None:
        self.failures, self.next_try = 0, None

    def difference(self, before: Contents | None, goes_on: Callable[[], bool]) -> str:
        """A path that is not the same as `before`; "" where there is none"""
        now = self.files.settled
        if before is now or (self.same and self.same[0] is before and self.same[1] is now):
            return ""
        if before is None or before.place != now.place:
            return str(now.place)
        if different := now.differences(before, goes_on):
            return now.path(different[0])
        self.same = before, now
        return ""

    def say(self, name: str) -> None:
        """What its user should know, once"""
        if self.files.open_file and not self.told:
            self.told = self.files.open_file
            _LOG.warning("'%s' waits: '%s' is being written", name, self.told)
        if not self.files.is_moving:
            self.told = ""
        if self.files.settled.has_more and not self.is_large:
            self.is_large = True
            _LOG.warning("'%s': of its files and directories, %d are looked at, and no others", name, MOST)


class PolledFolder:
    """One repository. What it holds is listed when the system says that it has changed"""

    def __init__(self, path: Path, name: str = "") -> None:
        """name: how people call it"""
        self.name, self._path = name or str(path), path
        self.models: Mapping[str, Path] = {}
        """Where the models lie; as it was where that cannot be read now"""
        self.error = ""
        self._state: tuple[int, ...] = ()

    def begin(self) -> None:
        """What it holds at the start; raises where it cannot be read"""
        self._read()

    def look(self) -> None:
        """The same, and says what is wrong with it once"""
        try:
            self._read()
        except (OSError, KushiError) as error:
            self._say(str(error))

    def _say(self, error: str) -> None:
        if error != self.error:
            _LOG.error("failed to poll model repository '%s': %s", self.name, error)
        self.error = error

    def _read(self) -> None:
        now = time.time_ns()
        found = self._path.stat()
        state = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
        if state != self._state:
            self.models = places(self._path)
        # a change in the same instant would not show in its times
        self._state = state if now - found.st_ctime_ns > DOUBT_NS else ()
        self.error = ""


class PolledBucket(PolledFolder):
    """One that lies in a bucket, which a thread lists: a store that does not answer holds up no look at others"""

    def __init__(self, path: Path, bucket: Bucket) -> None:
        super().__init__(path, bucket.url.text)
        self._bucket = bucket
        self._listing: threading.Thread | None = None
        self._failure = ""

    def look(self) -> None:
        if self._listing is None or not self._listing.is_alive():
            self._listing = threading.Thread(target=self._list, name="kushi-poll-bucket", daemon=True)
            self._listing.start()
            # a look waits once for the same listing
            self._listing.join(_PATIENCE_WITH_STORE_SECONDS)
        if self._listing.is_alive():
            self._say(self._failure or f"the store has not answered for {_PATIENCE_WITH_STORE_SECONDS:g} s")
        elif self._failure:
            self._say(self._failure)
        else:
            if self.error:
                _LOG.info("model repository '%s' can be polled again", self.name)
            self._read()

    def _read(self) -> None:
        self.models = {name: self._path / name for name in self._bucket.names()}
        self.error = ""

    def _list(self) -> None:
        try:
            self._bucket.refresh()
        except Exception as error:  # noqa: BLE001 - the next look asks again
            self._failure = str(error)
        else:
            self._failure = ""


def polled(path: Path, bucket: Bucket | None) -> PolledFolder:
    """The repository whose models lie there"""
    return PolledBucket(path, bucket) if bucket else PolledFolder(path)
