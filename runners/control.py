"""
Control: which models of the repositories are loaded.

It scans, resolves, loads, reloads and unloads: on the thread that asks, or on control threads of its own for what the
doors ask. A model changes one order at a time, different models at the same time. A reload builds the new versions
beside the old ones; they change places in one step, or not at all.

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
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kushi_native import Core, Order, Orders

from .backends import NativeModel, backend
from .errors import (
    ConfigInvalid,
    InternalError,
    KushiError,
    ModelNotFound,
    ModelNotReady,
    ModelUnavailable,
    ShuttingDown,
    Unsupported,
)
from .options import ALL_MODELS
from .repository.backend_config import BackendConfig, settings_of
from .repository.layout import ModelSource, check_model_name, find, scan
from .repository.resolve import NoVersion, Resolved, resolve

__all__ = ["Control"]

_LOG = logging.getLogger(__name__)
_PROGRESS_SECONDS = 2.0
_END_PATIENCE_SECONDS = 30.0

Failures = dict[int | None, KushiError]
"""What could not be loaded, by version; None stands for the model as a whole"""


class Control:
    """The models of some repositories in one native core"""

    def __init__(
        self,
        core: Core,
        repositories: Iterable[Path],
        *,
        auto_complete: bool,
        load_threads: int,
        backend_config: BackendConfig,
    ) -> None:
        self._core = core
        self._repositories = tuple(repositories)
        self._auto_complete = auto_complete
        self._load_threads = load_threads
        self._backend_config = backend_config
        self._failures: dict[str, KushiError] = {}
        self._changing: set[str] = set()
        self._lock = threading.Lock()
        self._closed = False
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
                self._fail(name, {None: Unsupported(found.refused[name], model=name)})
            elif name not in sources:
                self._failures[name] = error = _not_in_repository(name)
                _LOG.error("%s: model not found in any model repository", error)
        self._load_all([source for name, source in sources.items() if everything or name in names])

    def attend(self) -> None:
        """Carries out what the doors ask, from now until the control is closed or nobody refers to it any more"""
        orders = self._core.orders()
        control = weakref.ref(self)
        threads = [
            threading.Thread(target=_attend, args=(orders, control), name=f"kushi-control-{index}", daemon=True)
            for index in range(self._load_threads)
        ]
        self._end = weakref.finalize(self, _end, os.getpid(), orders, threads)
        for thread in threads:
            thread.start()

    def close(self) -> None:
        """Ends the control threads, once they have carried out what they are at"""
        self._closed = True
        if self._end:
            self._end()

    def load(self, name: str) -> None:
        """Loads a model as it lies in the repository now; where it fails, what served goes on serving"""
        check_model_name(name)
        with self._change(name):
            try:
                source = find((path.absolute() for path in self._repositories), name)
                if source is None:
                    raise _not_in_repository(name)
                resolved = resolve(source, auto_complete=self._auto_complete)
            except ModelNotFound:
                raise
            except NoVersion as error:
                self._fail(name, {None: error})
                raise _load_failed(name, f"{error}\n") from error
            except (KushiError, OSError) as error:
                reason = _explained(error, name)
                self._fail(name, {None: reason})
                raise ConfigInvalid(f"{_not_in_repository(name)}: {reason}", model=name, status=500) from error
            if failures := self._load_versions(source, resolved):
                self._fail(name, failures)
                clauses = "".join(
                    f"version {version} is at UNAVAILABLE state: {error};" for version, error in failures.items()
                )
                raise _load_failed(name, f"{clauses}\n") from next(iter(failures.values()))

    def unload(self, name: str) -> None:
        """Takes a model away; what it has accepted is still answered. Nothing happens where it is not loaded"""
        with self._change(name):
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
    def _change(self, name: str) -> Iterator[None]:
        if self._closed:
            raise ShuttingDown("the engine is closed")
        with self._lock:
            if name in self._changing:
                raise ModelNotReady(
                    f"a related model '{name}' to a load/unload request is currently loading or unloading",
                    model=name,
                    status=500,
                )
            self._changing.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._changing.discard(name)

    def _load_all(self, sources: Sequence[ModelSource]) -> None:
        with ThreadPoolExecutor(self._load_threads, thread_name_prefix="kushi-load") as pool:
            waiting = {pool.submit(self._load_first, source): source.name for source in sources}
            for names in _still_waiting(waiting):
                _LOG.info("still loading: %s", ", ".join(names))
        for done in waiting:
            done.result()

    def _load_first(self, source: ModelSource) -> None:
        try:
            failures = self._load_versions(source, resolve(source, auto_complete=self._auto_complete))
        except (KushiError, OSError) as error:
            failures = {None: _explained(error, source.path)}
        if failures:
            self._fail(source.name, failures)

    def _load_versions(self, source: ModelSource, resolved: Resolved) -> Failures:
        """All versions or none: they serve together, once each of them is loaded"""
        ready: list[tuple[str, Sequence[NativeModel]]] = []
        failures: Failures = {}
        for version in resolved.versions:
            self._core.announce(source.name, version)
        try:
            for version in resolved.versions:
                _LOG.info("loading: %s:%d", source.name, version)
                try:
                    name = resolved.config.backend
                    loaded = backend(name).load(
                        source,
                        resolved.config,
                        version,
                        auto_complete=self._auto_complete,
                        settings=settings_of(self._backend_config, name),
                    )
                except (KushiError, OSError) as error:
                    failures[version] = _explained(error, source.path)
                else:
                    ready.append((loaded.specification.model_dump_json(), loaded.sessions))
                    _LOG.debug("'%s' version %d runs on %d thread(s)", source.name, version, loaded.intra_op_threads)
            if not failures:
                self._core.load(source.name, ready)
        except ShuttingDown:
            raise
        except KushiError as error:
            failures = dict.fromkeys(resolved.versions, error)
        finally:
            self._core.withdraw(source.name)
        if not failures:
            self._failures.pop(source.name, None)
            for version in resolved.versions:
                _LOG.info("successfully loaded '%s' version %d", source.name, version)
        return failures

    def _fail(self, name: str, failures: Failures) -> None:
        # a traceback would keep this control alive
        self._failures[name] = next(iter(failures.values())).with_traceback(None)
        for version, error in failures.items():
            named = f"'{name}'" if version is None else f"'{name}' version {version}"
            _LOG.error("failed to load %s: %s", named, error)
            self._core.fail(name, version, str(error))


def _attend(orders: Orders, control: weakref.ref[Control]) -> None:
    while (order := orders.next()) is not None:
        if (alive := control()) is not None:
            alive.carry_out(order)
        del alive, order


def _end(process: int, orders: Orders, threads: Sequence[threading.Thread]) -> None:
    if os.getpid() != process:
        return
    orders.close()
    until = time.monotonic() + _END_PATIENCE_SECONDS
    for thread in threads:
        # the last reference to a control may go on one of its own threads
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(max(0, until - time.monotonic()))


def _not_in_repository(name: str) -> ModelNotFound:
    return ModelNotFound(f"failed to load '{name}', failed to poll from model repository", model=name, status=500)


def _load_failed(name: str, what: str) -> ModelUnavailable:
    return ModelUnavailable(f"load failed for model '{name}': {what}", model=name, status=400)


def _explained(error: KushiError | OSError, what: object) -> KushiError:
    if isinstance(error, KushiError):
        return error
    return ConfigInvalid(f"{error.filename or what}: {error.strerror or error}")


def _still_waiting(futures: Mapping[Future[None], str]) -> Iterator[list[str]]:
    """The names of what is not done, each time that a while has passed, until all is"""
    started = time.monotonic()
    while pending := wait(futures, timeout=_PROGRESS_SECONDS).not_done:
        if time.monotonic() - started >= _PROGRESS_SECONDS:
            yield sorted(futures[future] for future in pending)
