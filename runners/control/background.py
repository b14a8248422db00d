"""
What is made behind a model that another form of it serves meanwhile, as a plan of TensorRT: one work at a time, on a
thread of its own. When it is done, the model is loaded again, as if somebody had asked for it.

A work that fails is a line in the log, and what serves goes on serving. Nothing is made twice without being asked for.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..errors import KushiError, ShuttingDown

if TYPE_CHECKING:
    import weakref
    from collections.abc import Sequence

    from ..backends.steps import Work

__all__ = ["Background"]

_LOG = logging.getLogger(__name__)
_PATIENCE_SECONDS = 10.0
_MOST_CHANGES = 8
"""So often something else than before is made for a model, without anybody asking for it"""


class _Control(Protocol):
    def load_again(self, name: str) -> None: ...


@dataclass
class _Tries:
    """For one model, since somebody asked for it"""

    made: dict[str, bool] = field(default_factory=dict)
    """What has been tried, and whether it was made"""
    changes: int = 0
    """How often a load wanted what none had wanted before"""


class Background:
    """The works of all models of a controller"""

    def __init__(self) -> None:
        self._control: weakref.ref[_Control] | None = None
        self._wanted: dict[str, list[Work]] = {}
        self._running: Work | None = None
        self._cancelled = False
        """What runs has been told to end"""
        self._loaded_again = ""
        """The model that is loaded just now because of what was made for it"""
        self._tries: defaultdict[str, _Tries] = defaultdict(_Tries)
        """Of each model"""
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self, control: weakref.ref[_Control]) -> None:
        """Who loads models again"""
        self._control = control

    def want(self, model: str, works: Sequence[Work]) -> None:
        """These and no others are to be made for the model from now on; what is made already goes on"""
        with self._changed:
            if self._loaded_again == model:
                works = self._not_tried(model, works)
            else:
                self._tries.pop(model, None)
            running = None if self._cancelled else self._running
            if works:
                self._wanted[model] = [running if running and running.key == work.key else work for work in works]
            else:
                self._wanted.pop(model, None)
            if running and not any(running in wanted for wanted in self._wanted.values()):
                self._cancelled = True
                running.cancel()
            if self._wanted and not self._thread and not self._closed:
                self._thread = threading.Thread(target=self._run, name="kushi-background", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _not_tried(self, model: str, works: Sequence[Work]) -> Sequence[Work]:
        """Without those that come again, and without end: where each load finds another content, say"""
        tries = self._tries[model]
        if any(tries.made.get(work.key) for work in works):
            _LOG.error("'%s' goes on as it is: what was made for it cannot be served", model)
        waiting = {work.key for work in self._wanted.get(model, ())}
        others = [work for work in works if work.key not in tries.made]
        if all(work.key in waiting for work in others):
            return others
        tries.changes += 1
        if tries.changes <= _MOST_CHANGES:
            return others
        _LOG.error("'%s' goes on as it is: its files change while something is made of them", model)
        return [work for work in others if work.key in waiting]

    def is_about(self, model: str) -> bool:
        """Whether something is made for the model, or it is loaded again just now since that was made"""
        with self._changed:
            return model in self._wanted or model == self._loaded_again

    def close(self) -> None:
        """Nothing is made any more"""
        with self._changed:
            self._closed = True
            self._wanted.clear()
            if self._running:
                self._running.cancel()
            self._changed.notify_all()
        # the last reference to a controller may go on this very thread
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE_SECONDS)

    def _run(self) -> None:
        while (found := self._next()) is not None:
            model, work = found
            try:
                work.run()
            except KushiError as error:
                _LOG.error("'%s' goes on as it is: %s", model, error)
                made = False
            except Exception:  # noqa: BLE001 - the thread has other works
                _LOG.exception("'%s' goes on as it is", model)
                made = False
            else:
                made = True
            self._finish(model, work, made=made)

    def _next(self) -> tuple[str, Work] | None:
        """The model and the work that are next, once there are any; None: nothing comes any more"""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._wanted)
            if self._closed:
                return None
            model, works = next(iter(self._wanted.items()))
            self._running, self._cancelled = works[0], False
            return model, works[0]

    def _finish(self, model: str, work: Work, *, made: bool) -> None:
        with self._changed:
            self._running = None
            wanted = self._wanted.get(model, [])
            still = work in wanted and not self._cancelled
            if still:
                self._tries[model].made[work.key] = made
            if work in wanted:
                wanted.remove(work)
                if not wanted:
                    del self._wanted[model]
            control = self._control() if self._control and still and made and not self._closed else None
            self._loaded_again = model if control else ""
        if control is None:
            return
        try:
            control.load_again(model)
        except ShuttingDown:
            pass
        except KushiError as error:
            _LOG.warning("'%s' is not loaded again: %s", model, error)
        except Exception:  # noqa: BLE001 - the thread has other works
            _LOG.exception("'%s' is not loaded again", model)
        finally:
            with self._changed:
                self._loaded_again = ""
