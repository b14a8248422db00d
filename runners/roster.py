"""
The roster: what is loaded of each model of a control, and why not.

The versions of a model begin to serve together, or none of them does and what served before goes on. Whoever calls has
the turn of the model.
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType

from kushi_native import Core, shortened

from .composition import Composition
from .errors import KushiError, ModelNotFound, ShuttingDown
from .loading import Load, failure_of, forget_frames
from .opening import Failures, Opening
from .reloading import Reloading
from .repository.ensemble import is_ensemble
from .repository.resolve import Resolved
from .unfinished import Unfinished

__all__ = ["Roster", "not_in_repository"]

_LOG = logging.getLogger(__name__)


class Roster:
    """The models of a control"""

    def __init__(
        self,
        core: Core,
        composition: Composition,
        opening: Opening,
        unfinished: Unfinished,
        reloading: Reloading | None,
    ) -> None:
        self._core = core
        self._composition = composition
        self._opening = opening
        self._unfinished = unfinished
        self._reloading = reloading
        self._failures: dict[str, KushiError] = {}

    @property
    def failures(self) -> Mapping[str, KushiError]:
        """The models whose last load has failed by now"""
        return MappingProxyType(self._failures.copy())

    def load(self, load: Load, resolved: Resolved) -> Failures:
        """Its versions, all or none, and keeps why not"""
        source = resolved.source
        for version in resolved.versions:
            self._core.announce(source.name, version)
        try:
            if self._reloading and not is_ensemble(resolved.config):
                self._reloading.watch(load, source, resolved.config.backend)
            opened = self._opening.open(load, resolved, lambda: self.failures)
            loaded, failures = opened.versions, opened.failures
            if not failures:
                self._core.publish(source.name, [started for started, _ in loaded.values()])
                self._composition.serves(source.name, {version: config for version, (_, config) in loaded.items()})
            if opened.works or not failures:
                self._unfinished.want(source.name, opened.works)
        except ShuttingDown:
            raise
        except Exception as error:  # noqa: BLE001 - it is the failure of this model
            failures = dict.fromkeys(resolved.versions, failure_of(error, source.path))
        finally:
            self._core.withdraw(source.name)
        if failures:
            self.fail(source.name, failures)
        else:
            self._failures.pop(source.name, None)
            for version in resolved.versions:
                _LOG.info("successfully loaded '%s' version %d", source.name, version)
        return failures

    def unload(self, name: str) -> Resolved | None:
        """Takes a model away; what it was, where it was an ensemble"""
        if self._reloading:
            self._reloading.forget(name)
        self._unfinished.want(name, ())
        self._core.unload(name)
        self._failures.pop(name, None)
        return self._composition.forget(name)

    def suspend(self, ensemble: str, failures: Failures) -> None:
        """Takes an ensemble away that is to serve again when its models do"""
        self._core.unload(ensemble)
        self._composition.left(ensemble)
        self.fail(ensemble, failures)

    def miss(self, name: str) -> None:
        """A model that is in no repository, so that the index has no row of it"""
        self._failures[name] = error = not_in_repository(name)
        _LOG.error("%s: model not found in any model repository", error)

    def fail(self, name: str, failures: Failures) -> None:
        """Keeps why a model cannot be loaded"""
        for error in failures.values():
            # names and values in it come from files
            error.args = (shortened(str(error)),)
            forget_frames(error)
        self._failures[name] = next(iter(failures.values()))
        for version, error in failures.items():
            named = f"'{name}'" if version is None else f"'{name}' version {version}"
            _LOG.error("failed to load %s: %s", named, error)
            self._core.fail(name, version, str(error))

    def fail_unless_known(self, name: str, error: KushiError) -> None:
        """The same for a load that may have said more exactly why, without a line in the log"""
        self._failures.setdefault(name, error)


def not_in_repository(name: str) -> ModelNotFound:
    """With Triton's text, which management calls begin with as well"""
    return ModelNotFound(f"failed to load '{name}', failed to poll from model repository", model=name, status=500)
