"""
The start of a control: all models, or those that are named, several at a time; ensembles when their models are loaded.

A model that fails does not stop the others.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from .composition import Composition, in_order, not_available
from .errors import ConfigInvalid, KushiError, ShuttingDown
from .following import Following
from .loading import Loads
from .repository.ensemble import composing, is_ensemble
from .repository.layout import ModelSource, scan
from .repository.resolve import Resolved, resolve
from .roster import Roster
from .settings import ALL_MODELS
from .turns import Turns

__all__ = ["Start"]

_LOG = logging.getLogger(__name__)
_PROGRESS_SECONDS = 2.0


class Start:
    """What happens once, before anyone asks"""

    def __init__(
        self,
        roster: Roster,
        composition: Composition,
        following: Following,
        loads: Loads,
        turns: Turns,
        *,
        auto_complete: bool,
    ) -> None:
        self._roster = roster
        self._composition = composition
        self._following = following
        self._loads = loads
        self._turns = turns
        self._auto_complete = auto_complete

    def run(self, repositories: Iterable[Path], names: Sequence[str], threads: int) -> None:
        """Loads these models, or all, on so many threads"""
        found = scan(repositories)
        sources = {source.name: source for source in found.models}
        everything = ALL_MODELS in names
        for name in sorted({*sources, *found.refused} if everything else set(names)):
            if name in found.refused:
                self._roster.fail(name, {None: ConfigInvalid(found.refused[name], model=name)})
            elif name not in sources:
                self._roster.miss(name)
        chosen = [source for name, source in sources.items() if everything or name in names]
        ensembles: dict[str, Resolved] = {}
        begun: set[str] = set()
        while chosen:
            begun.update(source.name for source in chosen)
            ensembles |= self._load_all(chosen, threads)
            steps = {step for one in ensembles.values() for step in composing(one.config)}
            chosen = [sources[name] for name in sorted(steps - begun) if name in sources]
        self._load_ensembles(ensembles, {*sources, *found.refused})

    def _load_all(self, sources: Sequence[ModelSource], threads: int) -> dict[str, Resolved]:
        """All but the ensembles, which are answered"""
        with ThreadPoolExecutor(threads, thread_name_prefix="kushi-start") as pool:
            waiting = {pool.submit(self._load, source): source.name for source in sources}
            try:
                for names in _still_waiting(waiting):
                    _LOG.info("still loading: %s", ", ".join(names))
            except BaseException:
                # a signal ends the wait of this thread; those of the pool wait as well
                pool.shutdown(wait=False, cancel_futures=True)
                # no load begins behind those that are given up
                self._turns.close(gives_up=True)
                raise
        found = [done.result() for done in waiting]
        return {one.source.name: one for one in found if one}

    def _load(self, source: ModelSource) -> Resolved | None:
        name = source.name
        with suppress(ShuttingDown), self._following.change(name, partial(self._loads.begin, name)) as load:
            try:
                resolved = load.run(source.path, partial(resolve, source, auto_complete=self._auto_complete))
                if is_ensemble(resolved.config):
                    return resolved
                self._roster.load(load, resolved)
            except KushiError as error:
                self._roster.fail(name, {None: error})
        return None

    def _load_ensembles(self, ensembles: Mapping[str, Resolved], there: Iterable[str]) -> None:
        ordered, circles = in_order(ensembles)
        for name, error in circles.items():
            self._roster.fail(name, {None: error})
        for resolved in ordered:
            name = resolved.source.name
            missing = sorted({*composing(resolved.config)}.difference(there))
            if missing:
                self._roster.fail(name, {None: not_available(name, missing)})
                continue
            self._composition.wanted(resolved)
            with suppress(ShuttingDown), self._following.change(name, partial(self._loads.begin, name)) as load:
                self._roster.load(load, resolved)


def _still_waiting(futures: Mapping[Future[Any], str]) -> Iterator[list[str]]:
    """The names of what is not done, each time that a while has passed, until all is"""
    started = time.monotonic()
    while pending := wait(futures, timeout=_PROGRESS_SECONDS).not_done:
        if time.monotonic() - started >= _PROGRESS_SECONDS:
            yield sorted(futures[future] for future in pending)
