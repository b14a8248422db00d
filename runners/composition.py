"""
Composition: which models are loaded, with the configurations by which they serve, and which ensembles need them.

Control threads ask and write it; each call is whole under its lock.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from .errors import ConfigInvalid
from .repository.ensemble import composing
from .repository.messages import ModelConfig
from .repository.resolve import Resolved

__all__ = ["Composition", "circle", "in_order", "not_available"]


class Composition:
    """The models of one control"""

    def __init__(self) -> None:
        self._serving: dict[str, Mapping[int, ModelConfig]] = {}
        self._ensembles: dict[str, Resolved] = {}
        self._lock = threading.Lock()

    def wanted(self, ensemble: Resolved) -> None:
        """An ensemble that serves whenever its models do, until it is forgotten"""
        with self._lock:
            self._ensembles[ensemble.source.name] = ensemble

    def serves(self, model: str, versions: Mapping[int, ModelConfig]) -> None:
        """These versions of a model are loaded now, and no others"""
        with self._lock:
            self._serving[model] = versions

    def left(self, model: str) -> None:
        """No version of it serves any more"""
        with self._lock:
            self._serving.pop(model, None)

    def forget(self, model: str) -> Resolved | None:
        """It is unloaded; answers it where it was an ensemble"""
        with self._lock:
            self._serving.pop(model, None)
            return self._ensembles.pop(model, None)

    def serving(self) -> Mapping[str, Mapping[int, ModelConfig]]:
        """All models that are loaded"""
        with self._lock:
            return self._serving.copy()

    def ensemble(self, name: str) -> Resolved | None:
        """The wanted ensemble of that name"""
        with self._lock:
            return self._ensembles.get(name)

    def ensembles_of(self, model: str) -> list[Resolved]:
        """The wanted ensembles that have a step of this model"""
        with self._lock:
            return [one for one in self._ensembles.values() if model in composing(one.config)]


def in_order(ensembles: Mapping[str, Resolved]) -> tuple[list[Resolved], dict[str, ConfigInvalid]]:
    """Ensembles behind those that they are made of, and the ones in a circle with the reason"""
    left = dict(ensembles)
    failed: dict[str, ConfigInvalid] = {}
    while True:
        graph = {name: [step for step in composing(one.config) if step in left] for name, one in left.items()}
        try:
            order = list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            # each is named behind what it is made of
            ring = list(reversed(error.args[1]))
            failed |= dict.fromkeys(ring, circle(ring))
            left = {name: one for name, one in left.items() if name not in ring}
        else:
            return [left[name] for name in order], failed


def circle(ring: Iterable[str]) -> ConfigInvalid:
    """Ensembles that need each other, the first again at the end"""
    return ConfigInvalid(f"circular dependency between ensembles: {' -> '.join(ring)}")


def not_available(ensemble: str, models: Sequence[str]) -> ConfigInvalid:
    """Steps whose models are in no repository"""
    return ConfigInvalid(
        f"ensemble {ensemble} contains models that are not available or ambiguous: {', '.join(models)}"
    )
