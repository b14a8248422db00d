"""
Opening: the versions of one model are opened, started in the core and warmed up, one after another.

None of them serves yet: whoever asked publishes all of them, or lets all of them go. On the thread that carries out the
load.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from kushi_native import Core, StartedVersion

from ..alternatives import Candidate, candidates
from ..backends import ensemble, pipeline
from ..backends.device_limits import DeviceLimits
from ..backends.isolation_messages import Order
from ..backends.pipeline import Loaded
from ..backends.steps import NotYet, Work
from ..errors import KushiError, ShuttingDown, about
from ..repository.backend_config import BackendConfig, settings_of
from ..repository.ensemble import is_ensemble
from ..repository.layout import ModelSource
from ..repository.messages import ModelConfig
from ..repository.resolve import Resolved, resolve_written
from ..repository.said_here import ALTERNATIVE
from ..repository.self_tests import SELF_TEST, read_self_test
from ..repository.specification import instances_of
from ..repository.supported_fields import SAMPLES
from ..repository.warm_up import WarmUpSample
from .load import Load
from .plan import Shared
from .state import State

__all__ = ["Failures", "Opened", "Opening"]

_LOG = logging.getLogger(__name__)

Failures = dict[int | None, KushiError]
"""What could not be loaded, by version; None stands for the model as a whole"""


@dataclass
class Opened:
    """What became of a model"""

    versions: dict[int, tuple[StartedVersion, ModelConfig]] = field(default_factory=dict)
    """Those that could be loaded, each with its complete configuration"""
    shared: dict[int, Shared] = field(default_factory=dict)
    """What the instances of each of them share, where there may be more or fewer of them"""
    failures: Failures = field(default_factory=dict)
    works: list[Work] = field(default_factory=list)
    """What is to be made before they are loaded again in their own form"""


_Found = tuple[Loaded, Sequence[Work]]


class Opening:
    """How the versions of any model are opened"""

    def __init__(
        self,
        core: Core,
        state: State,
        backend_config: BackendConfig,
        limits: DeviceLimits,
        *,
        auto_complete: bool,
        retries: int = 0,
        self_tests: bool = False,
        trial_seconds: float | None,
    ) -> None:
        self._core = core
        self._state = state
        self._backend_config = backend_config
        self._limits = limits
        self._auto_complete = auto_complete
        self._retries = retries
        self._self_tests = self_tests
        self._trial_seconds = trial_seconds

    def open(self, load: Load, resolved: Resolved, why: Callable[[], Mapping[str, KushiError]]) -> Opened:
        """
        Each version, whatever becomes of the others, in the first form of the model that can run; `why` says of other
        models why they are not loaded
        """
        opened = Opened()
        for candidate in self._forms(load, resolved):
            opened = self._open_form(load, candidate.resolved, why)
            if not opened.failures:
                if candidate.name:
                    _LOG.info("model '%s' is served in its form '%s'", resolved.source.name, candidate.name)
                break
            if candidate.name:
                candidate.refuse(next(iter(opened.failures.values())))
        return opened

    def _forms(self, load: Load, resolved: Resolved) -> Iterable[Candidate]:
        """Where they are asked before, all at once; or else each when the one before it has failed"""
        forms = candidates(resolved)
        if SAMPLES not in resolved.config.parameters:
            return forms
        several = list(forms)
        if len(several) == 1:
            _LOG.warning("model '%s': its '%s' compare nothing: it has one form here", resolved.source.name, SAMPLES)
            return several
        from .comparison import try_forms  # noqa: PLC0415 - NumPy, which other loads do without

        return try_forms(load, several, self._load)

    def _open_form(self, load: Load, resolved: Resolved, why: Callable[[], Mapping[str, KushiError]]) -> Opened:
        source = resolved.source
        opened = Opened()
        for version in resolved.versions:
            _LOG.info("loading: %s:%d", source.name, version)
            for tries_left in range(self._retries, -1, -1):
                try:
                    self._open_one(load, resolved, version, why(), opened)
                    break
                except ShuttingDown:
                    raise
                except KushiError as error:
                    if tries_left and not load.is_given_up and not isinstance(error, NotYet):
                        _LOG.warning("'%s' version %d is tried again: %s", source.name, version, error)
                        continue
                    opened.failures[version] = error
                    opened.works += error.works if isinstance(error, NotYet) else ()
                    break
        return opened

    def _open_one(
        self, load: Load, resolved: Resolved, version: int, failures: Mapping[str, KushiError], opened: Opened
    ) -> None:
        source = resolved.source
        work = partial(_start, self._core, source.name, version, self._opening(resolved, version, failures))
        loaded, started, unfinished = load.run(source.path, work)
        opened.works += unfinished
        if loaded.warm_up:
            _warm_up(load, source, started, loaded.warm_up)
        opened.versions[version] = started, loaded.config
        if most := started.most_instances:
            opened.shared[version] = Shared(loaded.intra_op_threads, instances_of(loaded.config), most)

    def _opening(self, resolved: Resolved, version: int, failures: Mapping[str, KushiError]) -> Callable[[], _Found]:
        source, config = resolved.source, resolved.config
        if is_ensemble(config):
            serving = self._state.serving()
            return lambda: (ensemble.load(source, config, version, serving, failures), ())
        return partial(self._open_version, resolved, version)

    def _open_version(self, resolved: Resolved, version: int) -> _Found:
        """In the form that it has, or where that is to be made first, in the one that serves meanwhile"""
        try:
            return self._load_tested(resolved, version), ()
        except NotYet as error:
            _LOG.warning("'%s' version %d: %s", resolved.source.name, version, error)
            try:
                error.meanwhile.parameters[ALTERNATIVE].string_value = f"{error.meanwhile.backend}: {error}"
                return self._load_tested(resolve_written(resolved.source, error.meanwhile), version), error.works
            except KushiError as failure:
                text = f"{error}, which it cannot: {failure}"
                raise NotYet(text, meanwhile=error.meanwhile, works=error.works) from failure

    def _load_tested(self, resolved: Resolved, version: int) -> Loaded:
        """Where its configuration or the server wants that, held against its runtime alone"""
        loaded, source = self._load(resolved, version), resolved.source
        with about(source.stated_in):
            wanted = read_self_test(source.path, loaded.config, of_all=self._self_tests)
        if wanted is None:
            if SELF_TEST in loaded.config.parameters:
                backend = loaded.config.backend
                _LOG.warning("'%s': no self-test: backend '%s' has no runtime of its own", source.name, backend)
            return loaded
        from .self_test import self_tested  # noqa: PLC0415 - NumPy, which other loads do without

        settings = settings_of(self._backend_config, loaded.config.backend)
        order = Order(source, loaded.config, version, settings, self._limits, auto_complete=False)
        return self_tested(loaded, order, wanted)

    def _load(self, resolved: Resolved, version: int) -> Loaded:
        return pipeline.load(
            resolved.source,
            resolved.config,
            version,
            auto_complete=self._auto_complete,
            settings=settings_of(self._backend_config, resolved.config.backend),
            limits=self._limits,
            trial_seconds=self._trial_seconds,
        )


def _start(
    core: Core, name: str, version: int, opening: Callable[[], _Found]
) -> tuple[Loaded, StartedVersion, Sequence[Work]]:
    loaded, works = opening()
    _LOG.debug("'%s' version %d runs on %d thread(s)", name, version, loaded.intra_op_threads)
    return loaded, core.start(name, loaded.specification.model_dump_json(), loaded.sessions), works


def _warm_up(load: Load, source: ModelSource, started: StartedVersion, samples: Sequence[WarmUpSample]) -> None:
    try:
        load.run(source.path, partial(started.warm_up, samples))
    except BaseException:
        # one that was given up ends with it
        started.retire()
        raise
