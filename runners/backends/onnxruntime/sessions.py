"""
The sessions of a version: on the CPU all instances share one, whose weights are in memory once. An instance has a
session of its own where the configuration gives it threads of its own, or cores of its own and several threads, and
wherever anything but the CPU computes; there also one for each size of its batches, where they have sizes.

The threads of a session are started by the thread that opens it, and stay on the cores that this one is on.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import kushi_native

from ...errors import ConfigInvalid
from ...repository.cores import Cores
from ..cores import running_on
from . import cuda
from .batch_sizes import BatchSizes
from .options import SessionOptions
from .values import Provider

__all__ = ["Place", "Sessions"]

_LOG = logging.getLogger(__name__)

Place = int | None
"""Where an instance is: the number of a GPU, or on the CPU"""


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
        instance = places.index(first)
        model = self._session(replace(self._options, profile=None), first, threads, instance)
        self._probe = (first, threads, model)
        return model

    def open(
        self,
        places: Sequence[Place],
        threads: int,
        *,
        sizes: Callable[[Place], BatchSizes] = lambda _: BatchSizes(),
        rehearse: Callable[[kushi_native.OnnxModel, int], object] = lambda *_: None,
    ) -> Sequence[kushi_native.OnnxModel]:
        """That of each instance, or one for all. `rehearse`: runs a batch of so many rows, before any client asks"""
        sessions: list[kushi_native.OnnxModel] = []
        shared: kushi_native.OnnxModel | None = None
        for instance, place in enumerate(places):
            alone = self._own_threads or bool(self._providers[place]) or (threads > 1 and len({*self._cores}) > 1)
            count = threads if not self._providers[place] else self._options.intra_op_threads or 1
            model = shared if shared and not alone else self._serving(place, count, instance, sizes(place), rehearse)
            shared = shared if alone else model
            sessions.append(model)
        self._probe = None
        return sessions[:1] if all(session is sessions[0] for session in sessions) else sessions

    def _serving(
        self,
        place: Place,
        threads: int,
        instance: int,
        sizes: BatchSizes,
        rehearse: Callable[[kushi_native.OnnxModel, int], object],
    ) -> kushi_native.OnnxModel:
        if not sizes.sizes:
            return self._take(place, threads, instance)
        opened: dict[int, kushi_native.OnnxModel] = {}
        for rows in reversed(sizes.sizes):
            try:
                opened[rows] = self._take(place, threads, instance, f"_{rows}")
            except ConfigInvalid as error:
                # the largest serves smaller batches as well
                if sizes.stated or not opened:
                    raise
                _LOG.warning("'%s' has no session for batches of %d: %s", self._path, rows, error)
                break
            if self._providers[place]:
                rehearse(opened[rows], rows)
        return kushi_native.OnnxModel.of_rows(opened)

    def _take(self, place: Place, threads: int, instance: int, profiled: str = "") -> kushi_native.OnnxModel:
        if self._probe and self._probe[:2] == (place, threads) and self._options.profile is None:
            model, self._probe = self._probe[2], None
            return model
        return self._session(self._options, place, threads, instance, profiled)

    def _session(
        self, options: SessionOptions, place: Place, threads: int, instance: int, profiled: str = ""
    ) -> kushi_native.OnnxModel:
        """profiled: what tells its profile from those of the other sessions of the instance"""
        providers = self._providers[place]
        if any(provider.accelerator == "tensorrt" for provider in providers):
            cuda.preload_tensorrt()
        elif place is not None:
            cuda.preload()
        # what a GPU's library starts is for all models, and no matter of the first one's cores
        cores = self._cores[instance] if self._cores and not providers else ()
        with running_on(cores):
            made = options.still_to_compile().at(place, providers, threads=threads, instance=f"{instance}{profiled}")
            return made.open(self._path)
