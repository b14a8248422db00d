"""
The sessions of a version: on the CPU all instances share one, whose weights are in memory once. An instance has a
session of its own where the configuration gives it threads of its own, or cores of its own and several threads, and
wherever anything but the CPU computes. Where batches have sizes, there is one for each size in the place of one.

The threads of a session are started by the thread that opens it, and stay on the cores that this one is on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import kushi_native

from ...repository.cores import Cores
from ..cores import running_on
from . import cuda
from .batch_sizes import BatchSizes
from .options import SessionOptions
from .sized import Rehearse, open_in_sizes
from .values import Provider

__all__ = ["Place", "Sessions"]

Place = int | None
"""Where an instance is: the number of a GPU, or on the CPU"""


class _Instance(NamedTuple):
    """One, or the first of those that share their sessions"""

    place: Place
    threads: int
    number: int


class Sessions:
    """The sessions of one version, as many as its instances need"""

    def __init__(
        self,
        path: Path,
        options: SessionOptions,
        providers: Mapping[Place, tuple[Provider, ...]],
        *,
        own_threads: bool,
        cores: Sequence[Cores] = (),
    ) -> None:
        """cores: those of each instance; empty where any will do"""
        self._path = path
        self._options = options
        self._providers = providers
        self._own_threads = own_threads
        self._cores = cores
        self._probe: tuple[Place, int, kushi_native.OnnxModel] | None = None

    def probe(self, places: Sequence[Place], first: Place) -> kushi_native.OnnxModel:
        """A session to look at the model, at the first of these; it serves as well, unless that one is to be another"""
        threads = self._options.intra_op_threads or 1
        looking = _Instance(first, threads, places.index(first))
        model = self._session(replace(self._options, profile=None), looking)
        self._probe = (first, threads, model)
        return model

    def open(
        self,
        places: Sequence[Place],
        threads: int,
        *,
        sizes: Callable[[Place], BatchSizes] = lambda _: BatchSizes(),
        rehearse: Rehearse = lambda *_: None,
    ) -> Sequence[kushi_native.OnnxModel]:
        """
        That of each instance, or one for all. `sizes`: those of the batches, on all GPUs the same; `rehearse`: see
        `open_in_sizes`
        """
        instances: list[_Instance] = []
        shared: _Instance | None = None
        for number, place in enumerate(places):
            alone = self._own_threads or bool(self._providers[place]) or (threads > 1 and len({*self._cores}) > 1)
            count = threads if not self._providers[place] else self._options.intra_op_threads or 1
            one = shared if shared and not alone else _Instance(place, count, number)
            shared = shared if alone else one
            instances.append(one)
        made = {one: self._take(one, sizes(one.place)) for one in dict.fromkeys(instances)}
        self._probe = None
        for on_cpu in (True, False):
            alike = [one for one in made if (one.place is None) == on_cpu]
            if alike and (stated := sizes(alike[0].place)).sizes:
                largest = [made[one] for one in alike]
                made |= zip(alike, self._in_sizes(alike, stated, largest, rehearse), strict=True)
        sessions = [made[one] for one in instances]
        return sessions[:1] if all(session is sessions[0] for session in sessions) else sessions

    def _in_sizes(
        self,
        instances: Sequence[_Instance],
        sizes: BatchSizes,
        largest: Sequence[kushi_native.OnnxModel],
        rehearse: Rehearse,
    ) -> Sequence[kushi_native.OnnxModel]:
        def open_(at: int, rows: int) -> kushi_native.OnnxModel:
            return self._session(self._options, instances[at], rows)

        # the CPU plans nothing
        accelerated = bool(self._providers[instances[0].place])
        return open_in_sizes(sizes, largest, open_, rehearse if accelerated else lambda *_: None)

    def _take(self, instance: _Instance, sizes: BatchSizes) -> kushi_native.OnnxModel:
        if self._probe and self._probe[:2] == instance[:2] and self._options.profile is None:
            model, self._probe = self._probe[2], None
            return model
        return self._session(self._options, instance, next(reversed(sizes.sizes), None))

    def _session(self, options: SessionOptions, instance: _Instance, rows: int | None = None) -> kushi_native.OnnxModel:
        """rows: of the batches that it takes, if it takes no others"""
        providers = self._providers[instance.place]
        if any(provider.accelerator == "tensorrt" for provider in providers):
            cuda.preload_tensorrt()
        elif instance.place is not None:
            cuda.preload()
        # what a GPU's library starts is for all models, and no matter of the first one's cores
        cores = self._cores[instance.number] if self._cores and not providers else ()
        name = f"{instance.number}" if rows is None else f"{instance.number}_{rows}"
        with running_on(cores):
            made = options.still_to_compile().at(instance.place, providers, threads=instance.threads, instance=name)
            return made.open(self._path)
