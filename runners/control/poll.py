"""
Polling: what lies in the repositories is what is desired, and a thread looks every few seconds for what has changed.

What has changed is read and loaded on threads of their own, so that a load that takes long holds up no other one. A
model goes when its folder does. A repository that cannot be read has not changed. A load that failed is tried again
while its files stay as they are, after longer and longer waits.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ..errors import ConfigInvalid, ShuttingDown
from ..repository.contents import DOUBT_NS
from ..repository.layout import places
from .plan import Unload, Wish, concerns, plan, waits
from .watched import Watched

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .plan import Actual, Desired, Step

__all__ = ["Poll"]

_LOG = logging.getLogger(__name__)
_SETTLE_SECONDS: Final = 1.0
"""After a look that found a change, the next one comes no later"""
_PATIENCE_SECONDS: Final = 10.0
_LONGEST_WAIT_SECONDS: Final = 60.0
_READ_BYTES: Final = 16 * 1024 * 1024
"""So much is read at a look for comparisons to come"""


class _Control(Protocol):
    @property
    def actual(self) -> Actual: ...
    def read_again(self, names: Iterable[str]) -> Desired: ...
    def carry_out_alone(self, step: Step) -> bool: ...


@dataclass
class _Model:
    """One that is polled"""

    files: Watched
    failures: int = 0
    """Of loads of the same files, one after another"""
    next_try: float | None = None
    told: str = ""
    """The file that was said to be written"""

    def is_due(self, now: float, seconds: float) -> bool:
        """Whether a load that has failed is tried again"""
        if self.next_try is None:
            self.failures += 1
            self.next_try = now + min(seconds * 2**self.failures, max(seconds, _LONGEST_WAIT_SECONDS))
        if now < self.next_try:
            return False
        self.next_try = None
        return True

    def has_changed(self) -> None:
        self.failures, self.next_try, self.told = 0, None, ""

    def say_written(self, name: str) -> None:
        """Once for each change"""
        if self.files.open_file and not self.told:
            self.told = self.files.open_file
            _LOG.warning("'%s' waits: '%s' is being written", name, self.told)


class Poll:
    """What is desired of the models of some repositories, as they lie there"""

    def __init__(
        self, repositories: Iterable[Path], seconds: float, threads: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """seconds: between two looks; 0 for none after the start. threads: steps that are carried out at a time"""
        self._seconds, self._threads, self._clock = seconds, threads, clock
        self._folders = [_Folder(path) for path in dict.fromkeys(repositories)]
        self._models: dict[str, _Model] = {}
        self._read: dict[str, Wish] = {}
        """What was read, and is not carried out yet"""
        self._missing: set[str] = set()
        """Models that were not there at the last look, and are desired until the next one"""
        self._told: set[str] = set()
        self._at_work: dict[str, threading.Thread] = {}
        self._closed = False
        self._is_done = False
        """A step has been carried out, behind which others may come"""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self) -> frozenset[str]:
        """The models that lie there now are about to be read; answers those that are not, since they are written"""
        for name, paths in self._places().items():
            model = self._models[name] = _Model(Watched(paths[0], is_loaded=False))
            if model.files.is_written():
                model.say_written(name)
            else:
                model.files.is_loaded()
        return frozenset(name for name, model in self._models.items() if model.files.open_file)

    def read(self, desired: Desired) -> Desired:
        """The same with what lay there when this began"""
        return {
            name: replace(wish, contents=self._models[name].files.contents) if name in self._models else wish
            for name, wish in desired.items()
        }

    def start(self, control: weakref.ref[_Control]) -> None:
        """Looks from now on, until this is closed or nobody refers to the controller"""
        if self._seconds:
            self._thread = threading.Thread(target=self._run, args=(control,), name="kushi-poll", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends the thread, and waits for the steps that it began; their loads have been given up"""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = [self._thread, *self._at_work.values()]
        until = time.monotonic() + _PATIENCE_SECONDS
        for thread in threads:
            # the last reference to a controller may go on one of these
            if thread and thread is not threading.current_thread():
                thread.join(max(0, until - time.monotonic()))

    def _run(self, control: weakref.ref[_Control]) -> None:
        next_look = time.monotonic() + self._pause()
        while self._wait(next_look - time.monotonic()):
            if (alive := control()) is None:
                return
            try:
                if time.monotonic() >= next_look:
                    self.look(alive)
                    next_look = time.monotonic() + self._pause()
                self.begin_steps(alive)
            except ShuttingDown:
                return
            except Exception:  # noqa: BLE001 - there is another look
                _LOG.exception("the repositories could not be polled")
                next_look = time.monotonic() + self._pause()
            del alive

    def _wait(self, seconds: float) -> bool:
        """Until the next look, or the end of a step; False at the end"""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._is_done, max(0, seconds))
            self._is_done = False
            return not self._closed

    def _pause(self) -> float:
        moving = bool(self._missing) or any(model.files.is_moving for model in self._models.values())
        return min(self._seconds, _SETTLE_SECONDS) if moving else self._seconds

    # --- what has changed ---

    def look(self, control: _Control) -> None:
        """Reads what has changed"""
        actual = control.actual
        there = self._places()
        self._go(there, actual)
        changed = {name: files for name, paths in there.items() if (files := self._changes(name, paths[0], actual))}
        for name, wish in control.read_again(changed).items():
            known = actual.get(name)
            if known and not known.failure and _serves_the_same(known.wish, wish, changed[name]):
                continue
            _LOG.info("'%s' is %s", name, f"loaded again: '{changed[name][0]}' has changed" if known else "new")
            self._read[name] = replace(wish, contents=self._models[name].files.contents)
        left = _READ_BYTES
        for model in self._models.values():
            if left > 0 and not model.files.is_moving:
                left = model.files.contents.read_some(left, lambda: not self._closed)

    def _places(self) -> dict[str, list[Path]]:
        """Where each model lies, without those that lie in several repositories, of which there is none"""
        found: dict[str, list[Path]] = {}
        for folder in self._folders:
            for name, path in folder.models().items():
                found.setdefault(name, []).append(path)
        several = {name for name, paths in found.items() if len(paths) > 1}
        for name in several - self._told:
            _LOG.error("failed to poll model '%s': not unique across all model repositories", name)
        self._told = several
        return {name: paths for name, paths in found.items() if name not in several}

    def _go(self, there: Mapping[str, Sequence[Path]], actual: Actual) -> None:
        """A model that is not there at two looks is gone"""
        missing = {*self._models, *actual} - there.keys()
        for name in missing & self._missing:
            if name in actual:
                _LOG.info("'%s' is gone: it is unloaded", name)
            self._models.pop(name, None)
            self._read.pop(name, None)
        self._missing = missing - self._missing

    def _changes(self, name: str, place: Path, actual: Actual) -> list[str]:
        """Of a model that is to be read again, what has changed"""
        model = self._models.get(name)
        if model is None or model.files.place != place:
            self._models[name] = _Model(Watched(place, is_loaded=False))
            return []
        if changes := model.files.changes():
            model.has_changed()
        elif model.files.is_moving:
            model.say_written(name)
        elif (known := actual.get(name)) is None:
            # somebody has unloaded it
            changes = [] if name in self._read else [str(place)]
        elif known.failure and not known.is_refused and not known.wish.is_ensemble and name not in self._at_work:
            changes = [str(place)] if model.is_due(self._clock(), self._seconds) else []
        return changes

    # --- what is to be done ---

    def begin_steps(self, control: _Control) -> bool:
        """Begins what is to be done now; answers whether there was anything to do"""
        # before the state, which a step changes before its end
        at_work = {*self._at_work}
        is_busy = bool(at_work)
        actual = control.actual
        for step in plan(actual, self._desired(actual)):
            if len(self._at_work) >= self._threads:
                break
            if not waits(step) and step.name not in at_work:
                thread = threading.Thread(
                    target=self._carry_out, args=(control, step), name="kushi-poll-step", daemon=True
                )
                self._at_work[step.name] = thread
                thread.start()
                is_busy = True
        return is_busy

    def _desired(self, actual: Actual) -> Desired:
        names = self._models.keys() | (self._missing & actual.keys())
        known = {name: actual[name].wish for name in names if name in actual}
        return known | self._read

    def _carry_out(self, control: _Control, step: Step) -> None:
        try:
            if not control.carry_out_alone(step):
                # the engine ends
                self._closed = True
        except Exception:  # noqa: BLE001 - of this model alone
            _LOG.exception("'%s' cannot be changed", step.name)
        finally:
            with self._changed:
                if not isinstance(step, Unload) and self._read.get(step.name) is getattr(step, "wish", None):
                    self._read.pop(step.name, None)
                del self._at_work[step.name]
                self._is_done = True
                self._changed.notify_all()


class _Folder:
    """One repository. What it holds is listed when the system says that it has changed"""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._models: Mapping[str, Path] = {}
        self._state: tuple[int, ...] = ()
        self._error = ""

    def models(self) -> Mapping[str, Path]:
        """Where the models lie; as it was where that cannot be read now"""
        try:
            now = time.time_ns()
            found = self._path.stat()
            state = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
            if state != self._state:
                self._models = places(self._path)
            # a change in the same instant would not show in its times
            self._state = state if now - found.st_ctime_ns > DOUBT_NS else ()
            self._error = ""
        except (OSError, ConfigInvalid) as error:
            self._say(str(error))
        return self._models

    def _say(self, error: str) -> None:
        if error != self._error:
            self._error = error
            _LOG.error("failed to poll model repository '%s': %s", self._path, error)


def _serves_the_same(served: Wish, wish: Wish, changed: Iterable[str]) -> bool:
    """Whether what has changed is nothing that the model serves by: another version, say"""
    before, now = served.resolved, wish.resolved
    if before is None or now is None or before.versions != now.versions or before.config != now.config:
        return False
    return not concerns(changed, now)
