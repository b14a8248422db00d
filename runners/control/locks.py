"""
Locks: one thread at a time changes a model, others wait or are refused.

Whoever loads an ensemble locks its models as well, one after the other, so that two threads may wait
for one another: that is found out before it happens.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TypeVar

from ..errors import ModelNotReady, ModelUnavailable, ShuttingDown
from .load import Load
from .threads import CLOSED, give_up

__all__ = ["Locks"]

_GIVE_UP_PATIENCE_SECONDS = 5.0
_NOT_READY = "Server not ready"
"""Triton's text for a load when the server exits"""

_Load = TypeVar("_Load", bound=Load | None)


class Locks:
    """Who changes which model"""

    def __init__(self) -> None:
        self._changing: dict[str, Load | None] = {}
        # models that change, each with the one that it waits for meanwhile
        self._awaiting: dict[str, str] = {}
        # models that change, with how many wait for that
        self._wanted: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._closed = False
        self._loads_ended = False

    @property
    def changing(self) -> Mapping[str, Load | None]:
        """The models that change, each with its load, if it is one; a view"""
        return MappingProxyType(self._changing)

    def end_loads(self) -> None:
        """From now on no load begins, and those that go on are given up"""
        with self._changed:
            self._loads_ended = True
            give_up(self._changing, _NOT_READY)
            self._changed.notify_all()

    def close(self, *, gives_up: bool = False) -> None:
        """From now on nothing begins. With `gives_up`, no load goes on"""
        with self._changed:
            self._closed = True
            if gives_up:
                give_up(self._changing, CLOSED)
            self._changed.notify_all()

    @contextmanager
    def take(
        self,
        name: str,
        begin: Callable[[], _Load],
        above: tuple[str, ...] | None = None,
        within: Load | None = None,
    ) -> Iterator[_Load]:
        """
        The time in which nothing else changes the model; what `begin` answers is what an unload may give up. What else
        changes it now is an error, or waited for where `above` says which models wait with it: for as long as nobody
        gives up the load `within` which that happens
        """
        with self._changed:
            if above is not None:
                self._wait(name, above, within)
            load = begin()
            if self._closed:
                raise ShuttingDown("the engine is closed")
            if self._loads_ended and isinstance(load, Load):
                raise ShuttingDown(_NOT_READY)
            if name in self._changing:
                raise ModelNotReady(
                    f"a related model '{name}' to a load/unload request is currently loading or unloading",
                    model=name,
                    status=500,
                )
            self._changing[name] = load
        try:
            yield load
        finally:
            with self._changed:
                del self._changing[name]
                self._changed.notify_all()

    def end_load_of(self, name: str, patience: float, *, waits: bool = True) -> None:
        """Gives a load that goes on so many seconds to end, and gives it up then; `waits` for the end of that"""
        with self._changed:
            self._changed.wait_for(lambda: not self._changing.get(name), patience)
            if load := self._changing.get(name):
                why = "the model is to be unloaded" if waits else "the files of the model have changed, or are gone"
                reason = ModelUnavailable(f"it is given up: {why}", model=name)
                load.give_up(reason, self._wanted.keys())
                # it may wait for another model
                self._changed.notify_all()
                patience = _GIVE_UP_PATIENCE_SECONDS if waits else 0
                self._changed.wait_for(lambda: self._changing.get(name) is not load, patience)

    def _wait(self, name: str, above: tuple[str, ...], within: Load | None) -> None:
        """Until nothing else changes the model, unless that waits for one of those `above`"""
        last = name
        while last in self._awaiting:
            last = self._awaiting[last]
        if last in above:
            return
        self._awaiting.update(dict.fromkeys(above, name))
        self._wanted[name] += 1
        self._changed.wait_for(
            lambda: (
                name not in self._changing
                or self._closed
                or self._loads_ended
                or (within is not None and within.is_given_up)
            )
        )
        self._wanted[name] -= 1
        # so that its keys are what is waited for
        self._wanted += Counter()
        for one in above:
            del self._awaiting[one]
