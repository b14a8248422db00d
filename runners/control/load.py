"""
Loads that can be given up, whatever they are at.

What reads the files of a model, or opens them in a framework, may wait or compute for as long as the files want, and
nothing can interrupt it. So it runs on a thread of its own: whoever waits for it stops waiting when its time is over,
when the model is to be unloaded, or at a signal. That thread is left alone then, and what it still brings is dropped.
There may be so many of these, and no more; of one model, there is one.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Container
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kushi_native import leave_threads_at_exit

from ..errors import KushiError, ModelUnavailable, Overloaded
from ..failures import Broken, failure_of
from ..wanted import work_for

__all__ = ["MOST_LEFT", "Load", "Loads", "threads_are_left"]

_LOG = logging.getLogger(__name__)
MOST_LEFT = 8
"""Threads of loads that were given up and have not ended"""
_LOWEST_PRIORITY = 19
_USUAL_END_SECONDS = 5.0
"""What is given up has mostly ended by then, and the next load of its model waits for that"""
_END_SECONDS = 1.0
_LOOK_SECONDS = 0.0002
_threads_left: list[Future[None]] = []
"""The ends of all threads of this process that were left alone"""

_T = TypeVar("_T")


def threads_are_left() -> bool:
    """
    Loads that were given up still run in this process. A library may not survive the end of the interpreter around
    its thread, so that such a process leaves without it.
    """
    return not all(ended.done() for ended in _threads_left)


@dataclass(frozen=True)
class _Left:
    """A load that was given up"""

    model: str
    ended: Future[None]
    since: float


class Loads:
    """The loads of one engine: how long each may take, and the threads of those that were given up"""

    def __init__(self, timeout_seconds: float) -> None:
        """timeout_seconds: 0 lets a load take as long as it takes"""
        self._timeout_seconds = timeout_seconds
        self._left: list[_Left] = []
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """How many loads were given up and have not ended"""
        with self._lock:
            self._left = [left for left in self._left if not left.ended.done()]
            return len(self._left)

    def begin(self, model: str, within: "Load | None" = None) -> "Load":
        """A load of a model, whose time begins to run; it is given up with that of the ensemble that it is `within`"""
        load = Load(self, model, self._timeout_seconds)
        if within:
            within.hold(load)
        return load

    def check_room(self, model: str, given_up: Future[None]) -> None:
        """One more load may begin; `given_up` ends the wait for one of the same model that is about to end"""
        with self._lock:
            earlier = next((left for left in self._left if left.model == model), None)
        if earlier:
            patience = earlier.since + _USUAL_END_SECONDS - time.monotonic()
            wait((earlier.ended, given_up), max(0, patience), FIRST_COMPLETED)
            if not earlier.ended.done() and not given_up.done():
                raise Overloaded(
                    "an earlier load of this model was given up and still stands, so that no other begins: free what "
                    "it waits for, as a file or a device, or start the server again"
                )
        if self.left >= MOST_LEFT:
            raise Overloaded(
                f"{MOST_LEFT} loads that were given up still stand in this process: it has to be started again"
            )

    def leave(self, model: str, thread: threading.Thread, ended: Future[None]) -> None:
        """Lets the thread go on by itself, behind all others. The end of the process does not wait for it"""
        with self._lock:
            self._left.append(_Left(model, ended, time.monotonic()))
        _threads_left.append(ended)
        leave_threads_at_exit()
        if thread.native_id is not None:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, thread.native_id, _LOWEST_PRIORITY)


class Load:
    """One load from its beginning to its end, step by step"""

    def __init__(self, loads: Loads, model: str, timeout_seconds: float) -> None:
        self._loads = loads
        self.model = model
        self._timeout_seconds = timeout_seconds
        self._limit = time.monotonic() + timeout_seconds if timeout_seconds else None
        self._step: Future[object] | None = None
        self._reason: KushiError | None = None
        self._given_up: Future[None] = Future()
        self._lock = threading.Lock()
        self._part: Load | None = None

    @property
    def is_given_up(self) -> bool:
        return self._given_up.done()

    def hold(self, part: "Load") -> None:
        """What it waits for from now on"""
        with self._lock:
            self._part = part
        if self._reason:
            part.give_up(self._reason)

    def give_up(self, reason: KushiError, spared: Container[str] = ()) -> None:
        """
        Ends the wait for it: what is at work, and every further step, fails for this reason. The load of a model in it
        goes on where others wait for that one, `spared`
        """
        with self._lock:
            if not self._reason:
                self._reason = reason
                self._given_up.set_result(None)
            if self._step:
                self._step.cancel()
            part = self._part
        if part and part.model not in spared:
            part.give_up(reason, spared)

    def run(self, what: object, work: Callable[[], _T]) -> _T:
        """What `work` answers, on a thread of its own. Whatever it raises becomes a KushiError"""
        self._loads.check_room(self.model, self._given_up)
        step: Future[_T] = Future()
        ended: Future[None] = Future()
        thread = threading.Thread(target=_carry_out, args=(step, ended, work), name="kushi-load", daemon=True)
        with self._lock:
            if self._reason:
                raise self._reason
            self._step = step  # type: ignore[assignment] # only to be cancelled
        try:
            thread.start()
        except RuntimeError as error:
            # no thread is to be had, or the interpreter is ending
            raise failure_of(error, what) from error
        try:
            return step.result(None if self._limit is None else max(0, self._limit - time.monotonic()))
        except KushiError:
            raise
        except (CancelledError, TimeoutError) as error:
            if step.cancel():
                raise self._reason or ModelUnavailable(
                    f"not loaded after {self._timeout_seconds:g} s (--model-load-timeout-secs): it is given up"
                ) from None
            raise failure_of(error, what) from error
        except Exception as error:
            raise failure_of(error, what) from error
        finally:
            # the same for a signal that ends the wait
            if step.cancel():
                self._loads.leave(self.model, thread, ended)
            else:
                _wait_until_gone(thread)


def _wait_until_gone(thread: threading.Thread) -> None:
    """
    A thread that has done its work still gives back what libraries keep for it, as OpenVINO does: nothing that it has
    opened may be freed meanwhile. Python's own end of it comes before that
    """
    place = Path(f"/proc/self/task/{thread.native_id}")
    until = time.monotonic() + _END_SECONDS
    while place.exists() and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)


def _carry_out(step: Future[_T], ended: Future[None], work: Callable[[], _T]) -> None:
    work_for(step)
    try:
        _settle(step, work)
    finally:
        ended.set_result(None)


def _settle(step: Future[_T], work: Callable[[], _T]) -> None:
    # nobody waits any more where the step was given up
    with suppress(InvalidStateError):
        try:
            answer = work()
        except Exception as error:  # noqa: BLE001 - whoever waits is told
            step.set_exception(error)
        except BaseException as error:  # noqa: BLE001 - as above
            broken = Broken()
            broken.__cause__ = error
            step.set_exception(broken)
        else:
            step.set_result(answer)
