"""
Control: which models of the repositories are loaded.

It scans, resolves, loads, reloads and unloads: on the thread that asks, or on control threads of its own for what the
doors ask. A model changes one order at a time, different models at the same time. A reload builds the new versions
beside the old ones; they change places in one step, or not at all.

Whatever goes wrong in a load is the failure of that model alone, and the index keeps its reason. A load that does not
come back is given up: after its time, by an unload, or at the end.

A control thread refers to the control only while it carries out an order, so that an engine that nobody refers to any
more goes, and its threads with it.
"""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from kushi_native import Core, Order, shortened

from .composition import Composition, circle, in_order, not_available
from .control_threads import CLOSED, attend, attend_urgent, end, give_up
from .errors import (
    ConfigInvalid,
    InternalError,
    KushiError,
    ModelNotFound,
    ModelNotReady,
    ModelUnavailable,
    ShuttingDown,
)
from .loading import Load, Loads, failure_of, forget_frames
from .opening import Failures, Opening
from .reloading import Reloading
from .repository.backend_config import BackendConfig
from .repository.ensemble import check_composing, composing, is_ensemble
from .repository.layout import ModelSource, check_model_name, find, scan
from .repository.resolve import NoVersion, Resolved, resolve
from .settings import ALL_MODELS, ModelOptions
from .turns import Turns

__all__ = ["Control"]

_LOG = logging.getLogger(__name__)
_PROGRESS_SECONDS = 2.0
_UNLOAD_PATIENCE_SECONDS = 5.0
"""How long an unload waits for a load to end by itself"""

_Load = TypeVar("_Load", bound=Load | None)


class Control:
    """The models of some repositories in one native core"""

    def __init__(
        self,
        core: Core,
        repositories: Iterable[Path],
        options: ModelOptions,
        backend_config: BackendConfig,
    ) -> None:
        self._core = core
        self._repositories = tuple(repositories)
        self._auto_complete = not options.strict_config
        self._load_threads = options.load_threads
        self._failures: dict[str, KushiError] = {}
        self._composition = Composition()
        self._opening = Opening(core, self._composition, backend_config, auto_complete=self._auto_complete)
        self._reloading = Reloading() if options.reload_python else None
        self._loads = Loads(options.load_timeout_seconds)
        self._turns = Turns()
        # ensembles whose models have changed meanwhile
        self._unrevised: set[str] = set()
        self._revising = threading.Lock()
        self._end: weakref.finalize[..., Any] | None = None

    @property
    def failures(self) -> Mapping[str, KushiError]:
        """The models whose last load has failed by now"""
        return MappingProxyType(self._failures.copy())

    def start(self, names: Sequence[str]) -> None:
        """Loads these models, or all; a model that fails does not stop the others"""
        found = scan(self._repositories)
        sources = {source.name: source for source in found.models}
        everything = ALL_MODELS in names
        for name in sorted({*sources, *found.refused} if everything else set(names)):
            if name in found.refused:
                self._fail(name, {None: ConfigInvalid(found.refused[name], model=name)})
            elif name not in sources:
                self._failures[name] = error = _not_in_repository(name)
                _LOG.error("%s: model not found in any model repository", error)
        chosen = [source for name, source in sources.items() if everything or name in names]
        ensembles: dict[str, Resolved] = {}
        begun: set[str] = set()
        while chosen:
            begun.update(source.name for source in chosen)
            ensembles |= self._load_all(chosen)
            steps = {step for one in ensembles.values() for step in composing(one.config)}
            chosen = [sources[name] for name in sorted(steps - begun) if name in sources]
        self._start_ensembles(ensembles, {*sources, *found.refused})
        if self._reloading:
            self._reloading.start(weakref.ref(self))

    def attend(self) -> None:
        """Carries out what the doors ask, from now until the control is closed or nobody refers to it any more"""
        orders = self._core.orders()
        control = weakref.ref(self)
        threads = [
            threading.Thread(
                target=attend if index < self._load_threads else attend_urgent,
                args=(orders, control),
                name=f"kushi-control-{index}",
                daemon=True,
            )
            for index in range(self._load_threads + 1)
        ]
        self._end = weakref.finalize(self, end, os.getpid(), orders, threads, self._turns.changing)
        for thread in threads:
            thread.start()

    def end_loads(self) -> None:
        """From now on no load begins, and those that go on are given up"""
        self._turns.end_loads()

    def close(self) -> None:
        """Ends the control threads; loads that go on are given up"""
        # No load begins behind those that are given up.
        self._turns.close()
        if self._end:
            self._end()
        if self._reloading:
            give_up(self._turns.changing, CLOSED)
            self._reloading.close()

    def load(self, name: str, *, waits: bool = True) -> None:
        """
        Loads a model as it lies in the repository now, and those of its steps that are not loaded; where it fails, what
        served goes on serving. What else changes the model is waited for, or with `waits` False an error
        """
        self._load(name, (), waits=waits)

    def _load(self, name: str, above: tuple[str, ...], *, waits: bool) -> None:
        """`above` are the ensembles for which it is loaded"""
        check_model_name(name)
        with self._change(name, partial(self._loads.begin, name), above if waits else None) as load:
            if above and name in self._composition.serving():
                # somebody else has just loaded it
                return
            try:
                source, resolved = load.run(
                    f"model '{name}'", partial(_find, self._repositories, name, self._auto_complete)
                )
            except (ModelNotFound, ShuttingDown):
                raise
            except NoVersion as error:
                self._fail(name, {None: error})
                raise _load_failed(name, f"{error}\n") from error
            except KushiError as error:
                self._fail(name, {None: error})
                kind = InternalError if isinstance(error, InternalError) else ConfigInvalid
                raise kind(f"{_not_in_repository(name)}: {error}", model=name, status=500) from error
            try:
                self._load_steps(resolved, (*above, name), waits=waits)
                failures = self._load_versions(load, source, resolved)
            except ConfigInvalid as error:
                failures = dict.fromkeys(resolved.versions, error)
            if failures:
                self._fail(name, failures)
                clauses = "".join(
                    f"version {version} is at UNAVAILABLE state: {error};" for version, error in failures.items()
                )
                raise _load_failed(name, f"{clauses}\n") from next(iter(failures.values()))
        self._revise_ensembles(name, above)

    def unload(
        self, name: str, *, dependents: bool = False, waits: bool = True, patience: float = _UNLOAD_PATIENCE_SECONDS
    ) -> None:
        """
        Takes a model away; what it has accepted is still answered. Nothing happens where it is not loaded. A load
        that goes on has `patience` seconds to end, and is given up then. Ensembles of it wait until it is loaded again.
        With `dependents` the models of an ensemble go with it, but for those that another one needs. `waits` as for
        a load
        """
        self._turns.end_load_of(name, patience)
        with self._change(name, _no_load, () if waits else None):
            if self._reloading:
                self._reloading.forget(name)
            self._core.unload(name)
            self._failures.pop(name, None)
            gone = self._composition.forget(name)
        self._revise_ensembles(name)
        for step in composing(gone.config) if gone and dependents else ():
            if not self._composition.ensembles_of(step):
                self.unload(step, dependents=True)

    def _load_steps(self, resolved: Resolved, above: tuple[str, ...], *, waits: bool) -> None:
        """The models of an ensemble that are not loaded; one that fails is named when the ensemble is checked"""
        if not is_ensemble(resolved.config):
            return
        missing = []
        for step in composing(resolved.config):
            if step in above:
                raise circle((*above[above.index(step) :], step))
            if step not in self._composition.serving():
                try:
                    self._load(step, above, waits=waits)
                except ModelNotFound:
                    missing.append(step)
                except ShuttingDown:
                    raise
                except KushiError as error:
                    self._failures.setdefault(step, error)
        if missing:
            raise not_available(resolved.source.name, missing)
        self._composition.wanted(resolved)

    def _start_ensembles(self, ensembles: Mapping[str, Resolved], there: Iterable[str]) -> None:
        ordered, circles = in_order(ensembles)
        for name, error in circles.items():
            self._fail(name, {None: error})
        for resolved in ordered:
            missing = sorted({*composing(resolved.config)}.difference(there))
            if missing:
                self._fail(resolved.source.name, {None: not_available(resolved.source.name, missing)})
            else:
                self._composition.wanted(resolved)
                self._load_resolved(resolved)

    def _load_resolved(self, resolved: Resolved) -> None:
        name = resolved.source.name
        with suppress(ShuttingDown), self._change(name, partial(self._loads.begin, name)) as load:
            if failures := self._load_versions(load, resolved.source, resolved):
                self._fail(name, failures)

    def _revise_ensembles(self, name: str, above: Sequence[str] = ()) -> None:
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
            with self._change(ensemble, partial(self._loads.begin, ensemble)) as load:
                changed = self._follow_models(ensemble, load)
        except ModelNotReady:
            # another thread was faster
            self._revise(ensemble)
        except ShuttingDown:
            pass
        else:
            if changed:
                self._revise_ensembles(ensemble)

    def _follow_models(self, ensemble: str, load: Load) -> bool:
        """Loads an ensemble whose models are all there, and takes another one away; answers whether that was news"""
        resolved = self._composition.ensemble(ensemble)
        if resolved is None:
            return False
        serving = self._composition.serving()
        try:
            check_composing(resolved.config, serving, self._failures)
        except ConfigInvalid as error:
            if ensemble not in serving:
                return False
            self._core.unload(ensemble)
            self._composition.left(ensemble)
            self._fail(ensemble, dict.fromkeys(serving[ensemble], error))
            return True
        if ensemble in serving:
            return False
        failures = self._load_versions(load, resolved.source, resolved)
        if failures:
            self._fail(ensemble, failures)
        return not failures

    def carry_out(self, order: Order) -> None:
        """Loads or unloads, and answers"""
        try:
            waits = not order.by_model
            if order.loads:
                self.load(order.model, waits=waits)
            else:
                # it has waited for a load among the orders
                self.unload(order.model, dependents=order.dependents, waits=waits, patience=0)
        except KushiError as error:
            order.fail(error.kind, error.status, str(error))
        except BaseException as error:  # noqa: BLE001 - the thread has other orders to carry out
            _LOG.exception("model '%s' cannot be %s", order.model, "loaded" if order.loads else "unloaded")
            order.fail(InternalError.kind, 500, f"{type(error).__name__}: {error}")
        else:
            order.done()

    @contextmanager
    def _change(self, name: str, begin: Callable[[], _Load], above: tuple[str, ...] | None = None) -> Iterator[_Load]:
        """A turn with the model, see `Turns.take`; ensembles that have missed one behind it"""
        with ExitStack() as behind, self._turns.take(name, begin, above) as load:
            behind.callback(self._revise_waiting, name)
            yield load

    def _load_all(self, sources: Sequence[ModelSource]) -> dict[str, Resolved]:
        """All but the ensembles, which are answered: they come when the others are loaded"""
        with ThreadPoolExecutor(self._load_threads, thread_name_prefix="kushi-start") as pool:
            waiting = {pool.submit(self._load_first, source): source.name for source in sources}
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

    def _load_first(self, source: ModelSource) -> Resolved | None:
        try:
            with self._change(source.name, partial(self._loads.begin, source.name)) as load:
                try:
                    resolved = load.run(source.path, partial(resolve, source, auto_complete=self._auto_complete))
                    if is_ensemble(resolved.config):
                        return resolved
                    failures = self._load_versions(load, source, resolved)
                except KushiError as error:
                    failures = {None: error}
                if failures:
                    self._fail(source.name, failures)
        except ShuttingDown:
            pass
        return None

    def _load_versions(self, load: Load, source: ModelSource, resolved: Resolved) -> Failures:
        """All versions or none: they serve together, once each of them is loaded"""
        if self._reloading and not is_ensemble(resolved.config):
            self._reloading.watch(source, resolved.config.backend)
        for version in resolved.versions:
            self._core.announce(source.name, version)
        try:
            loaded, failures = self._opening.open(load, resolved, lambda: self.failures)
            if not failures:
                self._core.publish(source.name, [started for started, _ in loaded.values()])
                self._composition.serves(source.name, {version: config for version, (_, config) in loaded.items()})
        except ShuttingDown:
            raise
        except Exception as error:  # noqa: BLE001 - it is the failure of this model
            failures = dict.fromkeys(resolved.versions, failure_of(error, source.path))
        finally:
            self._core.withdraw(source.name)
        if not failures:
            self._failures.pop(source.name, None)
            for version in resolved.versions:
                _LOG.info("successfully loaded '%s' version %d", source.name, version)
        return failures

    def _fail(self, name: str, failures: Failures) -> None:
        for error in failures.values():
            # names and values in it come from files
            error.args = (shortened(str(error)),)
            forget_frames(error)
        self._failures[name] = next(iter(failures.values()))
        for version, error in failures.items():
            named = f"'{name}'" if version is None else f"'{name}' version {version}"
            _LOG.error("failed to load %s: %s", named, error)
            self._core.fail(name, version, str(error))


def _no_load() -> None:
    """An unload, which nobody gives up"""


def _find(repositories: Sequence[Path], name: str, auto_complete: bool) -> tuple[ModelSource, Resolved]:  # noqa: FBT001 - only partial gives it
    source = find((path.absolute() for path in repositories), name)
    if source is None:
        raise _not_in_repository(name)
    return source, resolve(source, auto_complete=auto_complete)


def _not_in_repository(name: str) -> ModelNotFound:
    return ModelNotFound(f"failed to load '{name}', failed to poll from model repository", model=name, status=500)


def _load_failed(name: str, what: str) -> ModelUnavailable:
    return ModelUnavailable(f"load failed for model '{name}': {what}", model=name, status=400)


def _still_waiting(futures: Mapping[Future[Any], str]) -> Iterator[list[str]]:
    """The names of what is not done, each time that a while has passed, until all is"""
    started = time.monotonic()
    while pending := wait(futures, timeout=_PROGRESS_SECONDS).not_done:
        if time.monotonic() - started >= _PROGRESS_SECONDS:
            yield sorted(futures[future] for future in pending)
