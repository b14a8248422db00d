"""
Opening: the versions of one model are opened, started in the core and warmed up, one after another.

None of them serves yet: whoever asked publishes all of them, or lets all of them go. On the thread that carries out the
load.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kushi_native import Core, StartedVersion

from .backends import ensemble, pipeline
from .backends.pipeline import Loaded
from .composition import Composition
from .errors import KushiError, ShuttingDown
from .loading import Load
from .repository.backend_config import BackendConfig, settings_of
from .repository.ensemble import is_ensemble
from .repository.layout import ModelSource
from .repository.messages import ModelConfig
from .repository.resolve import Resolved
from .repository.warm_up import WarmUpSample

__all__ = ["Failures", "Opened", "Opening"]

_LOG = logging.getLogger(__name__)

Failures = dict[int | None, KushiError]
"""What could not be loaded, by version; None stands for the model as a whole"""

Opened = dict[int, tuple[StartedVersion, ModelConfig]]
"""What could, with its complete configuration"""


class Opening:
    """How the versions of any model are opened"""

    def __init__(
        self, core: Core, composition: Composition, backend_config: BackendConfig, *, auto_complete: bool
    ) -> None:
        self._core = core
        self._composition = composition
        self._backend_config = backend_config
        self._auto_complete = auto_complete

    def open(
        self, load: Load, resolved: Resolved, why: Callable[[], Mapping[str, KushiError]]
    ) -> tuple[Opened, Failures]:
        """Each version, whatever becomes of the others; `why` says of other models why they are not loaded"""
        source = resolved.source
        opened: Opened = {}
        failures: Failures = {}
        for version in resolved.versions:
            _LOG.info("loading: %s:%d", source.name, version)
            work = partial(_start, self._core, source.name, version, self._opening(resolved, version, why()))
            try:
                loaded, started = load.run(source.path, work)
                if loaded.warm_up:
                    _warm_up(load, source, started, loaded.warm_up)
            except ShuttingDown:
                raise
            except KushiError as error:
                failures[version] = error
            else:
                opened[version] = started, loaded.config
        return opened, failures

    def _opening(self, resolved: Resolved, version: int, failures: Mapping[str, KushiError]) -> Callable[[], Loaded]:
        source, config = resolved.source, resolved.config
        if is_ensemble(config):
            return partial(ensemble.load, source, config, version, self._composition.serving(), failures)
        return partial(_open, resolved, version, self._auto_complete, self._backend_config)


def _open(resolved: Resolved, version: int, auto_complete: bool, config: BackendConfig) -> Loaded:  # noqa: FBT001 - only partial gives it
    settings = settings_of(config, resolved.config.backend)
    return pipeline.load(resolved.source, resolved.config, version, auto_complete=auto_complete, settings=settings)


def _start(core: Core, name: str, version: int, opening: Callable[[], Loaded]) -> tuple[Loaded, StartedVersion]:
    loaded = opening()
    _LOG.debug("'%s' version %d runs on %d thread(s)", name, version, loaded.intra_op_threads)
    return loaded, core.start(name, loaded.specification.model_dump_json(), loaded.sessions)


def _warm_up(load: Load, source: ModelSource, started: StartedVersion, samples: Sequence[WarmUpSample]) -> None:
    try:
        load.run(source.path, partial(started.warm_up, samples))
    except BaseException:
        # one that was given up ends with it
        started.retire()
        raise
