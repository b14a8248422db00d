"""
Polling: what lies in the repositories is what is desired, and a thread looks every few seconds for what has changed.

What has changed is read and loaded on threads of their own, so that a load that takes long holds up no other one, nor
a look. A model goes when its folder does. A repository that cannot be read has not changed. A load that failed is tried
again while its files stay as they are, after longer and longer waits.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from ..errors import ConfigInvalid, ShuttingDown
from .plan import Load, Refuse, Unload, changes, plan, waits
from .polled import PolledModel, polled
from .watched import Watched

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from ..buckets.repositories import Repositories
    from ..repository.contents import Contents
    from .plan import Actual, Desired, Known, Step, Wish

__all__ = ["Poll"]

_LOG = logging.getLogger(__name__)
_SETTLE_SECONDS: Final = 1.0
"""After a look that found a change, the next one comes no later"""
_PATIENCE_SECONDS: Final = 10.0
_PATIENCE_WITH_REPLACED_SECONDS: Final = 60.0
"""How long a load may go on whose files are others by now"""
_LOOKS_UNTIL_GONE: Final = 2
_READ_BYTES: Final = 16 * 1024 * 1024
"""So much is read at a look for comparisons to come"""


class _Control(Protocol):
    @property
    def actual(self) -> Actual: ...
    def read_again(self, name: str) -> Wish | None: ...
    def carry_out_alone(self, step: Step) -> bool: ...
    def give_up(self, name: str) -> None: ...
    def note(self, name: str, note: str) -> None: ...


class Poll:
    """
    What is desired of the models of some repositories, as they lie there.

    Each look compares what lies there with what is known of each model: nothing depends on a change that was seen once.
    """

    def __init__(
        self, repositories: Repositories, seconds: float, threads: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """seconds: between two looks; 0 for none after the start. threads: steps that are carried out at a time"""
        self._seconds, self._threads, self._clock = seconds, threads, clock
        self._repositories = repositories
        paths = dict.fromkeys(path.absolute() for path in repositories.paths)
        self._folders = [polled(path, repositories.bucket_at(path)) for path in paths]
        self._models: dict[str, PolledModel] = {}
        self._to_read: dict[str, str] = {}
        """Models that are to be read, and why"""
        self._read: dict[str, Wish] = {}
        """What was read, and is not carried out yet"""
        self._missing: dict[str, int] = {}
        """Models that are not there, and for how many looks"""
        self._told: set[str] = set()
        self._notes: Mapping[str, str] = {}
        """What the index says of models"""
        self._at_work: dict[str, threading.Thread] = {}
        self._closed = False
        self._is_done = False
        """A step has been carried out, behind which others may come"""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self) -> frozenset[str]:
        """The models that lie there now are about to be read; answers those that are not, since they are written"""
        for folder in self._folders:
            folder.begin()
        for name, place in self._places().items():
            model = self._models[name] = PolledModel(self._watched(place))
            if not model.files.is_written():
                model.files.settle()
            model.say(name)
        return frozenset(name for name, model in self._models.items() if model.files.is_moving)

    def read(self, desired: Desired, unfinished: Collection[str]) -> Desired:
        """With what lay there when this began, without the models that are `unfinished` and ensembles of them"""
        waiting = {*unfinished}
        while more := {
            name for name, wish in desired.items() if name not in waiting and not waiting.isdisjoint(wish.steps)
        }:
            waiting |= more
        return {
            name: _seen_as(wish, self._models[name].files.settled) if name in self._models else wish
            for name, wish in desired.items()
            if name not in waiting
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
        moving = 1 in self._missing.values() or any(model.files.is_moving for model in self._models.values())
        return min(self._seconds, _SETTLE_SECONDS) if moving else self._seconds

    # --- what has changed ---

    def look(self, control: _Control) -> None:
        """Sees what is to be read"""
        for folder in self._folders:
            folder.look()
        actual, there = control.actual, self._places()
        self._go(there, actual, control)
        unreadable = {name for folder in self._folders if folder.error for name in folder.models}
        self._note({name: folder.error for folder in self._folders for name in folder.models}, control)
        for name in there.keys() - unreadable:
            try:
                why = self._why(name, there[name], actual, control)
            except Exception:  # noqa: BLE001 - of this model alone
                _LOG.exception("'%s' could not be polled", name)
                continue
            if why:
                self._to_read[name] = why
            else:
                self._to_read.pop(name, None)
        left = _READ_BYTES
        for model in self._models.values():
            if left > 0 and not model.files.is_moving:
                left = model.files.settled.read_some(left, self._goes_on)

    def _note(self, notes: Mapping[str, str], control: _Control) -> None:
        """The index says why a model is not looked at"""
        for name, note in {**dict.fromkeys(self._notes, ""), **notes}.items():
            if note != self._notes.get(name, ""):
                control.note(name, f"it is not polled: {note}" if note else "")
        self._notes = {name: note for name, note in notes.items() if note}

    def _goes_on(self) -> bool:
        return not self._closed

    def _places(self) -> dict[str, Path]:
        """Where each model lies, without those that lie in several repositories, of which there is none"""
        found: dict[str, list[Path]] = {}
        for folder in self._folders:
            for name, path in folder.models.items():
                found.setdefault(name, []).append(path)
        several = {name for name, paths in found.items() if len(paths) > 1}
        for name in several - self._told:
            _LOG.error("failed to poll model '%s': not unique across all model repositories", name)
        self._told = several
        return {name: paths[0] for name, paths in found.items() if name not in several}

    def _watched(self, place: Path) -> Watched:
        return Watched(place, self._repositories.contents(place), is_settled=False)

    def _go(self, there: Collection[str], actual: Actual, control: _Control) -> None:
        """A model that is not there at two looks is gone, and no load of it goes on"""
        # one that a program has made of files of its own lies nowhere
        known = {name for name, one in actual.items() if not (one.wish.folder or (one.served and one.served.folder))}
        missing = (self._models.keys() | known).difference(there)
        self._missing = {name: self._missing.get(name, 0) + 1 for name in missing}
        for name in self._gone():
            if name in known and self._missing[name] == _LOOKS_UNTIL_GONE:
                _LOG.info("'%s' is gone: it is unloaded", name)
            self._models.pop(name, None)
            self._read.pop(name, None)
            self._to_read.pop(name, None)
            if name in self._at_work:
                control.give_up(name)

    def _gone(self) -> set[str]:
        return {name for name, looks in self._missing.items() if looks >= _LOOKS_UNTIL_GONE}

    def _why(self, name: str, place: Path, actual: Actual, control: _Control) -> str:
        """A model is to be read again; "" where it is not"""
        model = self._models.get(name)
        if model is None or model.files.place != place:
            self._models[name] = PolledModel(self._watched(place))
            return ""
        is_settled = model.files.look()
        model.say(name)
        if not is_settled:
            return ""
        if in_hand := self._read.get(name):
            return self._why_instead(name, model, in_hand, control)
        if name in self._at_work:
            return self._to_read.get(name, "")
        known = actual.get(name)
        return "is new" if known is None else self._why_again(model, known, actual)

    def _why_instead(self, name: str, model: PolledModel, in_hand: Wish, control: _Control) -> str:
        """The same of one that is about to be carried out, or is just now"""
        changed = model.difference(in_hand.contents, self._goes_on)
        if not changed:
            model.replaced_since = None
            return ""
        now = self._clock()
        model.replaced_since = now if model.replaced_since is None else model.replaced_since
        if name in self._at_work and now - model.replaced_since > _PATIENCE_WITH_REPLACED_SECONDS:
            control.give_up(name)
        return f"has changed: '{changed}'"

    def _why_again(self, model: PolledModel, known: Known, actual: Actual) -> str:
        """The same of one that was carried out"""
        model.replaced_since = None
        in_vain = model.in_vain is model.files.settled
        changed = "" if in_vain else model.difference(known.wish.contents, self._goes_on)
        if changed and known.wish.contents is not None:
            model.is_well()
            return f"has changed: '{changed}'"
        if changed:
            # it may change its own files when it is loaded
            return "has changed while it was loaded" if model.is_due(self._clock(), self._seconds) else ""
        if not known.failure:
            model.is_well()
            return ""
        if known.wish.is_ensemble and changes(known.wish, actual) != model.tried_with:
            return "is tried again"
        if known.wish.is_ensemble and isinstance(known.failure, ConfigInvalid):
            # of its models
            return ""
        return "is tried again" if model.is_due(self._clock(), self._seconds) else ""

    # --- what is to be done ---

    def begin_steps(self, control: _Control) -> bool:
        """Begins what is to be done now; answers whether there was anything to do"""
        # before the state, which a step changes before its end
        at_work = {*self._at_work}
        is_busy = bool(at_work)
        actual = control.actual
        for name, why in [*self._to_read.items()]:
            if name not in at_work and len(self._at_work) < self._threads:
                del self._to_read[name]
                self._begin(name, partial(self._read_one, control, name, why, actual.get(name)))
                is_busy = True
        for step in plan(actual, self._desired(actual)):
            if waits(step) or step.name in at_work or step.name in self._at_work:
                continue
            if isinstance(step, Unload) or len(self._at_work) < self._threads:
                if (model := self._models.get(step.name)) and isinstance(step, Load | Refuse):
                    model.tried_with = changes(step.wish, actual)
                self._begin(step.name, partial(self._carry_out, control, step))
                is_busy = True
        return is_busy

    def _desired(self, actual: Actual) -> Desired:
        gone = self._gone()
        return {name: known.wish for name, known in actual.items() if name not in gone} | self._read

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._work, args=(name, work), name="kushi-poll-step", daemon=True)
        with self._changed:
            if self._closed:
                return
            # where the system has no thread for it now, the next look finds the same to do
            thread.start()
            self._at_work[name] = thread

    def _work(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - of this model alone
            _LOG.exception("'%s' cannot be changed", name)
        finally:
            with self._changed:
                del self._at_work[name]
                self._is_done = True
                self._changed.notify_all()

    def _read_one(self, control: _Control, name: str, why: str, known: Known | None) -> None:
        if (model := self._models.get(name)) is None:
            return
        contents, model.next_try = model.files.settled, None
        if (wish := control.read_again(name)) is None or name not in self._models:
            return
        if known and known.failure and wish.reason and str(known.failure) == str(wish.reason):
            # nothing is to be said again
            model.in_vain = contents
            return
        _LOG.info("'%s' %s", name, why)
        self._read[name] = _seen_as(wish, contents)

    def _carry_out(self, control: _Control, step: Step) -> None:
        try:
            if not control.carry_out_alone(step):
                # the engine ends
                self._closed = True
        finally:
            if isinstance(step, Load | Refuse) and self._read.get(step.name) is step.wish:
                del self._read[step.name]


def _seen_as(wish: Wish, contents: Contents) -> Wish:
    """With what was seen before it was read, so that what changes later is read again; a copy changes no more"""
    return wish if wish.contents and wish.contents.is_copy else replace(wish, contents=contents)
