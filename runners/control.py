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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from kushi_native import Core, Order, Orders, shortened

from .backends import pipeline
from .backends.native import NativeModel
from .backends.pipeline import Loaded
from .errors import (
    ConfigInvalid,
    InternalError,
    KushiError,
    ModelNotFound,
    ModelNotReady,
    ModelUnavailable,
    ShuttingDown,
)
from .loading import Load, Loads, failure_of
from .repository.backend_config import BackendConfig, settings_of
from .repository.layout import ModelSource, check_model_name, find, scan
from .repository.resolve import NoVersion, Resolved, resolve
from .settings import ALL_MODELS, ModelOptions

__all__ = ["Control"]

_LOG = logging.getLogger(__name__)
_PROGRESS_SECONDS = 2.0
_END_PATIENCE_SECONDS = 10.0
_NOT_READY = "Server not ready"
"""Triton's text for a load when the server exits"""
_CLOSED = "the load is given up: the engine is closed"
_GIVE_UP_PATIENCE_SECONDS = 5.0

Failures = dict[int | None, KushiError]
"""What could not be loaded, by version; None stands for the model as a whole"""

_Load = TypeVar("_Load", Load, None)


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
        self._backend_config = backend_config
        self._failures: dict[str, KushiError] = {}
        self._loads = Loads(options.load_timeout_seconds)
        self._changing: dict[str, Load | None] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._loads_ended = False
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
        self._load_all([source for name, source in sources.items() if everything or name in names])

    def attend(self) -> None:
        """Carries out what the doors ask, from now until the control is closed or nobody refers to it any more"""
        orders = self._core.orders()
        control = weakref.ref(self)
        threads = [
            threading.Thread(
                # the last one is for unloads alone: it gives up a load that keeps one of the others
                target=partial(_attend, only_unloads=index == self._load_threads),
                args=(orders, control),
                name=f"kushi-control-{index}",
                daemon=True,
            )
            for index in range(self._load_threads + 1)
        ]
        self._end = weakref.finalize(self, _end, os.getpid(), orders, threads, self._changing)
        for thread in threads:
            thread.start()

    def end_loads(self) -> None:
        """From now on no load begins, and those that go on are given up"""
        with self._changed:
            self._loads_ended = True
            _give_up(self._changing, _NOT_READY)

    def close(self) -> None:
        """Ends the control threads; loads that go on are given up"""
        with self._changed:
            # No load begins behind those that are given up.
            self._closed = True
        if self._end:
            self._end()

    def load(self, name: str) -> None:
        """Loads a model as it lies in the repository now; where it fails, what served goes on serving"""
        check_model_name(name)
        with self._change(name, self._loads.begin(name)) as load:
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
            if failures := self._load_versions(load, source, resolved):
                self._fail(name, failures)
                clauses = "".join(
                    f"version {version} is at UNAVAILABLE state: {error};" for version, error in failures.items()
                )
                raise _load_failed(name, f"{clauses}\n") from next(iter(failures.values()))

    def unload(self, name: str) -> None:
        """
        Takes a model away; what it has accepted is still answered. Nothing happens where it is not loaded, and a load
        that goes on is given up
        """
        with self._changed:
            load = self._changing.get(name)
            if load:
                load.give_up(ModelUnavailable("it is given up: the model is to be unloaded", model=name))
                self._changed.wait_for(lambda: self._changing.get(name) is not load, _GIVE_UP_PATIENCE_SECONDS)
        with self._change(name, None):
            self._core.unload(name)
            self._failures.pop(name, None)

    def carry_out(self, order: Order) -> None:
        """Loads or unloads, and answers"""
        try:
            if order.loads:
                self.load(order.model)
            else:
                self.unload(order.model)
        except KushiError as error:
            order.fail(error.kind, error.status, str(error))
        except BaseException as error:  # noqa: BLE001 - the thread has other orders to carry out
            _LOG.exception("model '%s' cannot be %s", order.model, "loaded" if order.loads else "unloaded")
            order.fail(InternalError.kind, 500, f"{type(error).__name__}: {error}")
        else:
            order.done()

    @contextmanager
    def _change(self, name: str, load: _Load) -> Iterator[_Load]:
        """The time in which nothing else changes the model; `load` is what an unload may give up"""
        with self._changed:
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

    def _load_all(self, sources: Sequence[ModelSource]) -> None:
        with ThreadPoolExecutor(self._load_threads, thread_name_prefix="kushi-start") as pool:
            waiting = {pool.submit(self._load_first, source): source.name for source in sources}
            try:
                for names in _still_waiting(waiting):
                    _LOG.info("still loading: %s", ", ".join(names))
            except BaseException:
                # a signal ends the wait of this thread; those of the pool wait as well
                pool.shutdown(wait=False, cancel_futures=True)
                # no load begins behind those that are given up
                with self._changed:
                    self._closed = True
                    _give_up(self._changing, _CLOSED)
                raise
        for done in waiting:
            done.result()

    def _load_first(self, source: ModelSource) -> None:
        try:
            with self._change(source.name, self._loads.begin(source.name)) as load:
                try:
                    resolved = load.run(source.path, partial(resolve, source, auto_complete=self._auto_complete))
                    failures = self._load_versions(load, source, resolved)
                except KushiError as error:
                    failures = {None: error}
                if failures:
                    self._fail(source.name, failures)
        except ShuttingDown:
            return

    def _load_versions(self, load: Load, source: ModelSource, resolved: Resolved) -> Failures:
        """All versions or none: they serve together, once each of them is loaded"""
        for version in resolved.versions:
            self._core.announce(source.name, version)
        try:
            ready, failures = self._open_versions(load, source, resolved)
            if not failures:
                self._core.load(source.name, ready)
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

    def _open_versions(
        self, load: Load, source: ModelSource, resolved: Resolved
    ) -> tuple[list[tuple[str, Sequence[NativeModel]]], Failures]:
        ready: list[tuple[str, Sequence[NativeModel]]] = []
        failures: Failures = {}
        for version in resolved.versions:
            _LOG.info("loading: %s:%d", source.name, version)
            work = partial(_open, resolved, version, self._auto_complete, self._backend_config)
            try:
                loaded = load.run(source.path, work)
            except ShuttingDown:
                raise
            except KushiError as error:
                failures[version] = error
            else:
                ready.append((loaded.specification.model_dump_json(), loaded.sessions))
                _LOG.debug("'%s' version %d runs on %d thread(s)", source.name, version, loaded.intra_op_threads)
        return ready, failures

    def _fail(self, name: str, failures: Failures) -> None:
        for error in failures.values():
            # names and values in it come from files
            error.args = (shortened(str(error)),)
            _forget_frames(error)
        self._failures[name] = next(iter(failures.values()))
        for version, error in failures.items():
            named = f"'{name}'" if version is None else f"'{name}' version {version}"
            _LOG.error("failed to load %s: %s", named, error)
            self._core.fail(name, version, str(error))


def _forget_frames(error: BaseException) -> None:
    """Tracebacks would keep this control alive, and what was opened of the model with all its memory"""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            waiting += [one.__cause__, one.__context__]


def _find(repositories: Sequence[Path], name: str, auto_complete: bool) -> tuple[ModelSource, Resolved]:  # noqa: FBT001 - only partial gives it
    source = find((path.absolute() for path in repositories), name)
    if source is None:
        raise _not_in_repository(name)
    return source, resolve(source, auto_complete=auto_complete)


def _open(resolved: Resolved, version: int, auto_complete: bool, config: BackendConfig) -> Loaded:  # noqa: FBT001 - as above
    settings = settings_of(config, resolved.config.backend)
    return pipeline.load(resolved.source, resolved.config, version, auto_complete=auto_complete, settings=settings)


def _attend(orders: Orders, control: weakref.ref[Control], *, only_unloads: bool) -> None:
    while (order := orders.next(only_unloads=only_unloads)) is not None:
        if (alive := control()) is not None:
            alive.carry_out(order)
        del alive, order


def _end(
    process: int, orders: Orders, threads: Sequence[threading.Thread], changing: Mapping[str, Load | None]
) -> None:
    if os.getpid() != process:
        return
    orders.close()
    _give_up(changing, _CLOSED)
    _join(threads, _END_PATIENCE_SECONDS)


def _join(threads: Sequence[threading.Thread], seconds: float) -> None:
    until = time.monotonic() + seconds
    for thread in threads:
        # the last reference to a control may go on one of its own threads
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(max(0, until - time.monotonic()))


def _give_up(changing: Mapping[str, Load | None], why: str) -> None:
    for load in [*changing.values()]:
        if load:
            load.give_up(ShuttingDown(why))


def _not_in_repository(name: str) -> ModelNotFound:
    return ModelNotFound(f"failed to load '{name}', failed to poll from model repository", model=name, status=500)


def _load_failed(name: str, what: str) -> ModelUnavailable:
    return ModelUnavailable(f"load failed for model '{name}': {what}", model=name, status=400)


def _still_waiting(futures: Mapping[Future[None], str]) -> Iterator[list[str]]:
    """The names of what is not done, each time that a while has passed, until all is"""
    started = time.monotonic()
    while pending := wait(futures, timeout=_PROGRESS_SECONDS).not_done:
        if time.monotonic() - started >= _PROGRESS_SECONDS:
            yield sorted(futures[future] for future in pending)
