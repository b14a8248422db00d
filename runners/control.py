"""
Control: which models of the repositories are loaded.

It loads, reloads and unloads: on the thread that asks, or on control threads of its own for what the
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
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kushi_native import Core, Order

from .backends.device_limits import NO_LIMITS, DeviceLimits
from .composition import Composition, circle, not_available
from .control_threads import CLOSED, attend, attend_urgent, end, give_up
from .errors import (
    ConfigInvalid,
    InternalError,
    KushiError,
    ModelNotFound,
    ModelUnavailable,
    ShuttingDown,
)
from .following import Following
from .loading import Load, Loads
from .opening import Opening
from .reloading import Reloading
from .repository.backend_config import BackendConfig
from .repository.ensemble import MOST_IN_A_ROW, composing, is_ensemble, too_deep
from .repository.layout import check_model_name, find
from .repository.resolve import NoVersion, Resolved, resolve
from .roster import Roster, not_in_repository
from .settings import ModelOptions
from .starting import Start
from .turns import Turns
from .unfinished import Unfinished

__all__ = ["Control"]

_LOG = logging.getLogger(__name__)
_TRIAL_SECONDS = 1800.0
_UNLOAD_PATIENCE_SECONDS = 5.0
"""How long an unload waits for a load to end by itself"""


class Control:
    """The models of some repositories in one native core"""

    def __init__(
        self,
        core: Core,
        repositories: Iterable[Path],
        options: ModelOptions,
        backend_config: BackendConfig,
        limits: DeviceLimits = NO_LIMITS,
    ) -> None:
        self._core = core
        self._repositories = tuple(repositories)
        self._auto_complete = not options.strict_config
        self._load_threads = options.load_threads
        self._reloading = Reloading() if options.reload_python else None
        self._unfinished = Unfinished()
        weakref.finalize(self, self._unfinished.close).atexit = False
        self._loads = Loads(options.load_timeout_seconds)
        self._turns = Turns()
        self._composition = Composition()
        opening = Opening(
            core,
            self._composition,
            backend_config,
            limits,
            auto_complete=self._auto_complete,
            trial_seconds=None if options.trust == "all" else options.load_timeout_seconds or _TRIAL_SECONDS,
        )
        self._roster = Roster(core, self._composition, opening, self._unfinished, self._reloading)
        self._following = Following(self._roster, self._composition, self._loads, self._turns)
        self._end: weakref.finalize[..., Any] | None = None

    @property
    def failures(self) -> Mapping[str, KushiError]:
        """The models whose last load has failed by now"""
        return self._roster.failures

    def start(self, names: Sequence[str]) -> None:
        """Loads these models, or all; a model that fails does not stop the others"""
        self._unfinished.start(weakref.ref(self))
        start = Start(
            self._roster,
            self._composition,
            self._following,
            self._loads,
            self._turns,
            auto_complete=self._auto_complete,
        )
        start.run(self._repositories, names, self._load_threads)
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
        give_up(self._turns.changing, CLOSED)
        self._unfinished.close()
        if self._reloading:
            self._reloading.close()

    def load(self, name: str, *, waits: bool = True) -> None:
        """
        Loads a model as it lies in the repository now, and those of its steps that are not loaded; where it fails, what
        served goes on serving. What else changes the model is waited for, or with `waits` False an error
        """
        self._load(name, (), waits=waits)

    def _load(self, name: str, above: tuple[str, ...], *, waits: bool, within: Load | None = None) -> None:
        """`above` are the ensembles for which it is loaded, `within` the load of the last one"""
        check_model_name(name)
        if len(above) > MOST_IN_A_ROW:
            raise too_deep(above[0])
        begin = partial(self._loads.begin, name, within)
        with self._following.change(name, begin, above if waits else None, within) as load:
            if above and name in self._composition.serving():
                # somebody else has just loaded it
                return
            try:
                resolved = load.run(f"model '{name}'", partial(_find, self._repositories, name, self._auto_complete))
            except (ModelNotFound, ShuttingDown):
                raise
            except NoVersion as error:
                self._roster.fail(name, {None: error})
                raise _load_failed(name, f"{error}\n") from error
            except KushiError as error:
                self._roster.fail(name, {None: error})
                kind = InternalError if isinstance(error, InternalError) else ConfigInvalid
                raise kind(f"{not_in_repository(name)}: {error}", model=name, status=500) from error
            try:
                self._load_steps(resolved, (*above, name), load, waits=waits)
                failures = self._roster.load(load, resolved)
            except ConfigInvalid as error:
                failures = dict.fromkeys(resolved.versions, error)
                self._roster.fail(name, failures)
            if failures:
                clauses = "".join(
                    f"version {version} is at UNAVAILABLE state: {error};" for version, error in failures.items()
                )
                raise _load_failed(name, f"{clauses}\n") from next(iter(failures.values()))
        self._following.revise(name, above)

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
        with self._following.change(name, _no_load, () if waits else None):
            gone = self._roster.unload(name)
        self._following.revise(name)
        for step in composing(gone.config) if gone and dependents else ():
            if not self._composition.ensembles_of(step):
                self.unload(step, dependents=True)

    def _load_steps(self, resolved: Resolved, above: tuple[str, ...], load: Load, *, waits: bool) -> None:
        """The models of an ensemble that are not loaded; one that fails is named when the ensemble is checked"""
        if not is_ensemble(resolved.config):
            return
        missing = []
        for step in composing(resolved.config):
            if load.is_given_up:
                # what is said of the ensemble next is why
                return
            if step in above:
                raise circle((*above[above.index(step) :], step))
            if step not in self._composition.serving():
                try:
                    self._load(step, above, waits=waits, within=load)
                except ModelNotFound:
                    missing.append(step)
                except ShuttingDown:
                    raise
                except KushiError as error:
                    self._roster.fail_unless_known(step, error)
        if missing:
            raise not_available(resolved.source.name, missing)
        self._composition.wanted(resolved)

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
            try:
                _LOG.exception("model '%s' cannot be %s", order.model, "loaded" if order.loads else "unloaded")
            finally:
                order.fail(InternalError.kind, 500, f"{type(error).__name__}: {error}")
        else:
            order.done()


def _no_load() -> None:
    """An unload, which nobody gives up"""


def _find(repositories: Sequence[Path], name: str, auto_complete: bool) -> Resolved:  # noqa: FBT001 - only partial gives it
    source = find((path.absolute() for path in repositories), name)
    if source is None:
        raise not_in_repository(name)
    return resolve(source, auto_complete=auto_complete)


def _load_failed(name: str, what: str) -> ModelUnavailable:
    return ModelUnavailable(f"load failed for model '{name}': {what}", model=name, status=400)
