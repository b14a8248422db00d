"""What is loaded: the actual half of a plan. Several threads ask and write it; each call is whole under its lock."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from types import MappingProxyType

from ..errors import KushiError
from ..failures import forget_frames
from ..repository.messages import ModelConfig
from .plan import Actual, Desired, Known, Shared, Wish, changes

__all__ = ["State"]


class State:
    """The models of one engine"""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._changes = count(1)
        self._lock = threading.Lock()

    @property
    def actual(self) -> Actual:
        with self._lock:
            return MappingProxyType(self._known.copy())

    @property
    def desired(self) -> Desired:
        """What was desired so far"""
        return {name: known.wish for name, known in self.actual.items()}

    def serving(self) -> Mapping[str, Mapping[int, ModelConfig]]:
        """All models that serve"""
        return {name: known.serving for name, known in self.actual.items() if known.serving}

    def is_serving(self, model: str) -> bool:
        with self._lock:
            return model in self._known and bool(self._known[model].serving)

    def failures(self) -> Mapping[str, KushiError]:
        """The models whose last load has failed"""
        return {name: known.failure for name, known in self.actual.items() if known.failure}

    def changes(self, wish: Wish) -> Mapping[str, int]:
        """Of the models that an ensemble asks, as they are before it is looked at"""
        return changes(wish, self.actual)

    def serves(
        self,
        wish: Wish,
        versions: Mapping[int, ModelConfig],
        seen: Mapping[str, int],
        shared: Mapping[int, Shared] = MappingProxyType({}),
    ) -> None:
        """
        These versions of a model serve from now on, and no others; `seen` are the changes before they were opened, and
        `shared` is what their instances share
        """
        with self._lock:
            self._known[wish.name] = Known(wish, versions, shared, served=wish, change=next(self._changes), seen=seen)

    def reroutes(self, served: Wish, versions: Mapping[int, ModelConfig]) -> None:
        """The same versions are found in another way"""
        with self._lock:
            if known := self._known.get(served.name):
                wish = served if known.wish is known.served else known.wish
                self._known[served.name] = replace(
                    known, wish=wish, served=served, serving=versions, change=next(self._changes)
                )

    def fails(self, wish: Wish, reason: KushiError, seen: Mapping[str, int]) -> None:
        """The wish could not be carried out; what served goes on. `seen` are the changes before it was tried"""
        with self._lock:
            known = self._known.get(wish.name, Known(wish))
            self._known[wish.name] = replace(known, wish=wish, failure=reason, seen=seen, is_refused=False)

    def refuses(self, wish: Wish, reason: KushiError) -> None:
        """The wish is none that can be carried out; what served goes on, and is what ensembles are followed by"""
        with self._lock:
            known = self._known.get(wish.name, Known(wish))
            self._known[wish.name] = replace(known, wish=wish, failure=reason, is_refused=True)

    def fails_unless_known(self, wish: Wish, reason: KushiError) -> None:
        """The same for a load that may have said more exactly why"""
        if wish.name not in self.failures():
            forget_frames(reason)
            self.refuses(wish, reason)

    def suspends(self, ensemble: str, reason: KushiError, seen: Mapping[str, int]) -> None:
        """It serves no more, and is still desired"""
        with self._lock:
            if known := self._known.get(ensemble):
                self._known[ensemble] = replace(
                    known, serving={}, failure=reason, change=next(self._changes), seen=seen
                )

    def forget(self, model: str) -> Wish | None:
        """It is not desired any more; what it served by, or was to"""
        with self._lock:
            known = self._known.pop(model, None)
            return known.followed if known else None
