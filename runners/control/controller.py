"""
The controller: makes what is loaded what is desired, as the plan says.

At the start all models are desired, or those that are named; later what clients, changed code and finished work ask
for. Orders of the doors are carried out on threads of its own, others on the thread that asks. A model changes one
order at a time, different models at the same time. A reload builds the new versions beside the old ones; they change
places in one step, or not at all.

Whatever goes wrong in a load is the failure of that model alone, and the index keeps its reason. A load that does not
come back is given up: after its time, by an unload, or at the end.

A control thread refers to the controller only while it carries out an order, so that an engine that nobody refers to
any more goes, and its threads with it.
"""

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from kushi_native import Core, Order

from ..backends.device_limits import NO_LIMITS, DeviceLimits
from ..buckets.repositories import Repositories
from ..errors import (
    ConfigInvalid,
    InternalError,
    KushiError,
    ModelNotFound,
    ModelNotReady,
    ModelUnavailable,
    ShuttingDown,
)
from ..repository.backend_config import BackendConfig
from ..repository.layout import ModelSource, check_model_name, scan
from ..repository.overrides import NO_OVERRIDES, Overrides
from ..repository.resolve import NoVersion
from ..settings import ALL_MODELS, ModelOptions
from . import plan as to_do
from .background import Background
from .code_watch import CodeWatch
from .load import Load, Loads
from .loader import Loader
from .locks import Locks
from .on_threads import on_threads
from .opening import Failures, Opening
from .plan import Actual, Desired, Step, Suspend, Wish, plan
from .poll import Poll
from .reader import Reader, not_in_repository, refused
from .rerouting import check_alone, rerouted, stated_routes
from .state import State
from .threads import CLOSED, attend, attend_urgent, end, give_up

__all__ = ["Controller"]

_LOG = logging.getLogger(__name__)
_TRIAL_SECONDS = 1800.0
_UNLOAD_PATIENCE_SECONDS = 5.0
"""How long an unload waits for a load to end by itself"""

_Load = TypeVar("_Load", bound=Load | None)


class Controller:
    """The models of some repositories in one native core"""

    def __init__(
        self,
        core: Core,
        repositories: Repositories,
        options: ModelOptions,
        backend_config: BackendConfig,
        limits: DeviceLimits = NO_LIMITS,
    ) -> None:
        auto_complete = not options.strict_config
        polls = options.control == "poll"
        self._core = core
        self._threads = options.load_threads
        self._code_watch = CodeWatch() if options.reload_python else None
        self._background = Background()
        weakref.finalize(self, self._background.close).atexit = False
        self._loads = Loads(options.load_timeout_seconds)
        self._locks = Locks()
        self._state = State()
        repositories.is_used = self._state.is_serving
        self._reader = Reader(
            repositories, auto_complete=auto_complete, config_name=options.config_name, leave=options.load_files
        )
        self._poll = Poll(repositories, options.poll_seconds, self._threads) if polls else None
        if self._poll:
            weakref.finalize(self, self._poll.close).atexit = False
        opening = Opening(
            core,
            self._state,
            backend_config,
            limits,
            auto_complete=auto_complete,
            retries=options.load_retries,
            self_tests=options.self_test,
            trial_seconds=None if options.trust == "all" else options.load_timeout_seconds or _TRIAL_SECONDS,
        )
        self._loader = Loader(core, self._state, opening, self._background, self._code_watch, repositories=repositories)
        self._end: weakref.finalize[..., Any] | None = None

    @property
    def failures(self) -> Mapping[str, KushiError]:
        """The models whose last load has failed by now"""
        return self._state.failures()

    # --- what is desired ---

    def start(self, names: Sequence[str]) -> None:
        """Loads these models, or all; a model that fails does not stop the others"""
        self._background.start(weakref.ref(self))
        self._reader.repositories.begin()
        if self._poll:
            unfinished = self._poll.begin()
            self._reach(self._poll.read(self._read(names), unfinished))
            self._poll.start(weakref.ref(self))
        else:
            self._reach(self._read(names))
        if self._code_watch:
            self._code_watch.start(weakref.ref(self))

    def load(
        self, name: str, overrides: Overrides = NO_OVERRIDES, *, waits: bool = True, keeps_files: bool = False
    ) -> None:
        """
        Loads a model as it lies in the repository now, or as `overrides` say, and those of its steps that do not serve;
        where it fails, what served goes on serving. What else changes the model is waited for, or with `waits` False an
        error
        """
        check_model_name(name)
        with self._change(name, partial(self._loads.begin, name), waits=waits) as load:
            wish = self._find(name, load, overrides, keeps_files=keeps_files)
            if failures := self._load_with_steps(wish, load, waits=waits):
                clauses = "".join(
                    f"version {version} is at UNAVAILABLE state: {error};" for version, error in failures.items()
                )
                raise _load_failed(name, f"{clauses}\n") from next(iter(failures.values()))

    def load_again(self, name: str) -> None:
        """The same of a model that may have been made of files that a load has brought, which stay"""
        self.load(name, keeps_files=True)

    def reroute(self, name: str, change: str, *, waits: bool = True) -> None:
        """Changes how requests find the versions of a model that serves, which stay as they are: see `rerouted`"""
        check_model_name(name)
        with self._change(name, partial(self._loads.begin, name), waits=waits) as load:
            known = self._state.actual.get(name)
            if known is None or not known.serving:
                text = f"the versions of model '{name}' cannot be changed: it does not serve"
                raise ModelUnavailable(text, model=name, status=400)
            may_keep = self._reader.leave != "none"
            changed = load.run(
                f"model '{name}'", partial(rerouted, known, change, self._reader.repositories, may_keep=may_keep)
            )
            self._loader.reroute(known, changed)
        _LOG.info("model '%s': its versions are found by %s", name, stated_routes(changed))

    def unload(
        self, name: str, *, dependents: bool = False, waits: bool = True, patience: float = _UNLOAD_PATIENCE_SECONDS
    ) -> None:
        """
        Takes a model away; what it has accepted is still answered. Nothing happens where it is not loaded. A load
        that goes on has `patience` seconds to end, and is given up then. Ensembles of it wait until it is loaded again.
        With `dependents` the models of an ensemble go with it, but for those that another one needs. `waits` as for
        a load
        """
        self._locks.end_load_of(name, patience)
        with self._change(name, _no_load, waits=waits):
            gone = self._loader.unload(name)
        for step in gone.steps if gone and dependents else ():
            if not any(step in known.followed.steps for known in self._state.actual.values()):
                self.unload(step, dependents=True)

    # --- what polling asks ---

    @property
    def actual(self) -> Actual:
        return self._state.actual

    def read_again(self, name: str) -> Wish | None:
        """A model as it lies in the repository now; None where it has just gone, or the engine ends"""
        try:
            with self._locks.take(name, partial(self._loads.begin, name), ()) as load:
                return self._reader.find(load, name, lists=False)
        except (ModelNotFound, ShuttingDown):
            return None
        except KushiError as error:
            return refused(name, error)

    def carry_out_alone(self, step: Step) -> bool:
        """Whether the engine does not end"""
        try:
            with self._locks.take(step.name, partial(self._loads.begin, step.name), ()) as load:
                # its models may have changed again meanwhile
                now = to_do.follow(step.name, self._state.actual) if isinstance(step, Suspend) else step
                if now:
                    self._carry_out(now, load)
        except ShuttingDown:
            return False
        return True

    def note(self, name: str, note: str) -> None:
        """What the index says of a model that serves"""
        self._core.note(name, note)

    def give_up(self, name: str) -> None:
        """A load of the model that goes on is not wanted any more"""
        self._locks.end_load_of(name, 0, waits=False)

    # --- orders of the doors ---

    def attend(self) -> None:
        """Carries out what the doors ask, from now until this is closed or nobody refers to it any more"""
        orders = self._core.orders()
        controller = weakref.ref(self)
        threads = [
            threading.Thread(
                target=attend if index < self._threads else attend_urgent,
                args=(orders, controller),
                name=f"kushi-control-{index}",
                daemon=True,
            )
            for index in range(self._threads + 1)
        ]
        self._end = weakref.finalize(self, end, os.getpid(), orders, threads, self._locks.changing)
        for thread in threads:
            thread.start()

    def carry_out(self, order: Order) -> None:
        """Loads or unloads, and answers"""
        try:
            waits = not order.by_model
            if order.versions is not None:
                check_alone(Overrides(order.config, order.files))
                self.reroute(order.model, order.versions, waits=waits)
            elif order.loads:
                self.load(order.model, Overrides(order.config, order.files), waits=waits)
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

    # --- its end ---

    def end_loads(self) -> None:
        """From now on no load begins, and those that go on are given up"""
        self._locks.end_loads()

    def close(self) -> None:
        """Ends the control threads; loads that go on are given up"""
        # No load begins behind those that are given up.
        self._locks.close()
        if self._end:
            self._end()
        give_up(self._locks.changing, CLOSED)
        if self._poll:
            self._poll.close()
        self._background.close()
        if self._code_watch:
            self._code_watch.close()

    # --- reading ---

    def _read(self, names: Sequence[str]) -> Desired:
        """These models, or all, and those that ensembles among them ask"""
        found = scan(self._reader.repositories.paths, self._reader.config_name)
        sources = {source.name: source for source in found.models}
        known = {*sources, *found.refused}
        wanted = known if ALL_MODELS in names else {*names}
        desired: dict[str, Wish] = {
            name: refused(name, not_in_repository(name)) for name in sorted(wanted.difference(known))
        }
        while more := sorted(wanted & known - desired.keys()):
            desired |= {name: refused(name, found.refused[name]) for name in more if name in found.refused}
            works = {name: partial(self._read_one, sources[name]) for name in more if name in sources}
            desired |= {wish.name: wish for wish in self._on_threads(works) if wish}
            if not desired.keys() >= {*more}:
                # the engine ends
                break
            wanted = {step for wish in desired.values() for step in wish.steps}
        return desired

    def _read_one(self, source: ModelSource) -> Wish | None:
        try:
            with self._locks.take(source.name, partial(self._loads.begin, source.name)) as load:
                return self._reader.wish(load, source)
        except ShuttingDown:
            return None

    def _find(self, name: str, load: Load, overrides: Overrides, *, keeps_files: bool) -> Wish:
        known = self._state.actual.get(name)
        served = known.served if known and known.serving else None
        try:
            return self._reader.find_again(load, name, overrides, served, keeps_files=keeps_files)
        except (ModelNotFound, ShuttingDown):
            raise
        except NoVersion as error:
            self._refuse(name, error, overrides)
            raise _load_failed(name, f"{error}\n") from error
        except KushiError as error:
            self._refuse(name, error, overrides)
            kind = InternalError if isinstance(error, InternalError) else ConfigInvalid
            raise kind(f"{not_in_repository(name)}: {error}", model=name, status=500) from error

    def _refuse(self, name: str, reason: KushiError, overrides: Overrides) -> None:
        """What is wrong with what a load brings is told to whoever brings it: nothing is known of the model by it"""
        if overrides == NO_OVERRIDES:
            self._loader.refuse(refused(name, reason), {None: reason})
        else:
            _LOG.error("failed to load '%s': %s", name, str(reason))

    # --- carrying out ---

    def _reach(self, desired: Desired) -> None:
        """All of the plan, several steps at a time, until there is nothing left to do"""
        done: set[str] = set()
        while True:
            # what was done once is from then on as others may have changed it
            actual = self._state.actual
            ours = {name: wish for name, wish in desired.items() if name not in done}
            left = {name: known.wish for name, known in actual.items()} | ours
            steps = [step for step in plan(actual, left) if not to_do.waits(step)]
            works = {step.name: partial(self.carry_out_alone, step) for step in steps}
            if not works or not all(self._on_threads(works)):
                # all is done, or the engine ends
                break
            done.update(works)

    def _load_with_steps(self, wish: Wish, load: Load, *, waits: bool) -> Failures:
        """The model, behind those that it asks and that do not serve; one that fails is named when it is checked"""
        try:
            steps = self._reader.steps_of(load, wish, self._state.serving())
        except ModelUnavailable:
            # its time is over, which it says next
            return self._carry_out(to_do.Load(wish.name, wish), load)
        new = {one.name: one for one in steps}
        gone = {*wish.steps}.difference(new, self._state.serving())
        desired = {name: one for name, one in self._state.desired.items() if name not in gone} | new
        own: Step = to_do.Load(wish.name, wish)
        for step in plan(self._state.actual, {**desired, wish.name: wish}):
            if load.is_given_up:
                # what is said of the model next is why
                return self._carry_out(to_do.Load(wish.name, wish), load)
            if step.name == wish.name:
                own = step
            elif step.name in new:
                self._load_step(step, new[step.name], wish.name, load, waits=waits)
        return self._carry_out(own, load)

    def _load_step(self, step: Step, wish: Wish, ensemble: str, load: Load, *, waits: bool) -> None:
        begin = partial(self._loads.begin, step.name, load)
        try:
            with self._locks.take(step.name, begin, (ensemble,) if waits else None, load) as part:
                # somebody else may just have loaded it
                if step.name not in self._state.serving():
                    self._carry_out(step, part)
        except ShuttingDown:
            raise
        except KushiError as error:
            self._state.fails_unless_known(wish, error)

    def _follow(self) -> None:
        """Ensembles whose models have changed begin to serve, or wait for them. Whoever changes one follows behind"""
        done = True
        while done:
            done = False
            actual = self._state.actual
            for step in plan(actual, {name: known.wish for name, known in actual.items()}):
                # another thread may change it just now
                with suppress(ModelNotReady):
                    try:
                        done = self._follow_one(step.name) or done
                    except ShuttingDown:
                        return

    def _follow_one(self, name: str) -> bool:
        """Whether there was still something to do with it"""
        with self._locks.take(name, partial(self._loads.begin, name)) as load:
            step = to_do.follow(name, self._state.actual)
            if step:
                self._carry_out(step, load)
            return step is not None

    def _carry_out(self, step: Step, load: Load) -> Failures:
        """One step; whoever calls has locked the model"""
        match step:
            case to_do.Load(_, Wish(resolved=resolved) as wish) if resolved:
                return self._loader.load(load, wish, resolved)
            case to_do.Refuse(_, wish, ModelNotFound() as reason):
                self._loader.miss(wish, reason)
            case to_do.Refuse(_, wish, reason):
                failures: Failures = dict.fromkeys(wish.resolved.versions if wish.resolved else [None], reason)
                self._loader.refuse(wish, failures)
                return failures
            case to_do.Suspend(name, reason, seen):
                self._loader.suspend(name, self._state.serving().get(name, {}), reason, seen)
            case to_do.Unload(name):
                self._loader.unload(name)
        return {}

    @contextmanager
    def _change(self, name: str, begin: Callable[[], _Load], *, waits: bool) -> Iterator[_Load]:
        """Nothing else changes the model meanwhile; its ensembles follow behind"""
        try:
            with self._locks.take(name, begin, () if waits else None) as load:
                yield load
        finally:
            self._follow()

    def _on_threads(self, works: Mapping[str, Callable[[], Any]]) -> list[Any]:
        return on_threads(self._threads, works, partial(self._locks.close, gives_up=True))


def _no_load() -> None:
    """An unload, which nobody gives up"""


def _load_failed(name: str, what: str) -> ModelUnavailable:
    return ModelUnavailable(f"load failed for model '{name}': {what}", model=name, status=400)
