"""
Ensembles follow their models: one begins to serve when all of them do, and waits when one has left.

Whoever changes a model has a turn with it. What an ensemble has missed because it was changed itself just then, it
catches up with behind that turn.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeVar

from .composition import Composition
from .errors import ConfigInvalid, ModelNotReady, ShuttingDown
from .loading import Load, Loads
from .repository.ensemble import check_composing
from .roster import Roster
from .turns import Turns

__all__ = ["Following"]

_Load = TypeVar("_Load", bound=Load | None)


class Following:
    """The ensembles of a control, and the turns with its models"""

    def __init__(self, roster: Roster, composition: Composition, loads: Loads, turns: Turns) -> None:
        self._roster = roster
        self._composition = composition
        self._loads = loads
        self._turns = turns
        # ensembles whose models have changed meanwhile
        self._unrevised: set[str] = set()
        self._revising = threading.Lock()

    @contextmanager
    def change(
        self,
        name: str,
        begin: Callable[[], _Load],
        above: tuple[str, ...] | None = None,
        within: Load | None = None,
    ) -> Iterator[_Load]:
        """A turn with the model, see `Turns.take`"""
        with ExitStack() as behind, self._turns.take(name, begin, above, within) as load:
            behind.callback(self._revise_waiting, name)
            yield load

    def revise(self, name: str, above: Sequence[str] = ()) -> None:
        """The ensembles of a model that was loaded or has left: each begins to serve, goes on, or waits for it"""
        for resolved in self._composition.ensembles_of(name):
            # what is loaded for one of these just now is no news to it
            if resolved.source.name not in above:
                self._revise(resolved.source.name)

    def _revise(self, ensemble: str) -> None:
        """Now, or once what changes it on another thread is done, which may have seen its models as they were before"""
        with self._revising:
            self._unrevised.add(ensemble)
        self._revise_waiting(ensemble)

    def _revise_waiting(self, ensemble: str) -> None:
        with self._revising:
            if ensemble in self._turns.changing or ensemble not in self._unrevised:
                return
            self._unrevised.remove(ensemble)
        try:
            with self.change(ensemble, partial(self._loads.begin, ensemble)) as load:
                changed = self._follow(ensemble, load)
        except ModelNotReady:
            # another thread was faster
            self._revise(ensemble)
        except ShuttingDown:
            pass
        else:
            if changed:
                self.revise(ensemble)

    def _follow(self, ensemble: str, load: Load) -> bool:
        """Loads an ensemble whose models are all there, and takes another one away; answers whether that was news"""
        resolved = self._composition.ensemble(ensemble)
        if resolved is None:
            return False
        serving = self._composition.serving()
        try:
            check_composing(resolved.config, serving, self._roster.failures)
        except ConfigInvalid as error:
            if ensemble not in serving:
                return False
            self._roster.suspend(ensemble, dict.fromkeys(serving[ensemble], error))
            return True
        return ensemble not in serving and not self._roster.load(load, resolved)
