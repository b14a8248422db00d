"""
The loader: carries out one step of a plan.

The versions of a model begin to serve together, or none of them does and what served before goes on. Whoever calls has
locked the model.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kushi_native import Core, StartedVersion, shortened

from ..buckets.repositories import Repositories
from ..errors import KushiError, ModelNotFound, ShuttingDown
from ..failures import failure_of, forget_frames
from ..repository.messages import ModelConfig
from ..repository.resolve import Resolved
from ..repository.specification import config_text, instances_of, scheduling_text
from ..repository.version_routes import check_alike, routes_of
from .background import Background
from .code_watch import CodeWatch
from .load import Load
from .opening import Failures, Opening
from .plan import Known, Shared, Wish
from .state import State
from .staying import restated_config, staying

__all__ = ["Loader"]

_LOG = logging.getLogger(__name__)


class Loader:
    """What happens to the models of one engine"""

    def __init__(
        self,
        core: Core,
        state: State,
        opening: Opening,
        background: Background,
        code_watch: CodeWatch | None,
        *,
        repositories: Repositories,
    ) -> None:
        self._core = core
        self._state = state
        self._opening = opening
        self._background = background
        self._code_watch = code_watch
        self._repositories = repositories

    def load(self, load: Load, wish: Wish, resolved: Resolved) -> Failures:
        """
        Its versions, all or none, and keeps why not. Those that serve as they are wanted stay as they are, while others
        come and go
        """
        source = resolved.source
        seen = self._state.changes(wish)
        failures: Failures = {}
        new = resolved.versions
        try:
            wish, stay = self._stay(load, wish)
            resolved = wish.resolved or resolved
            new = tuple(version for version in resolved.versions if version not in stay)
            for version in new:
                self._core.announce(source.name, version)
            if self._code_watch and not wish.is_ensemble:
                self._code_watch.watch(load, source, resolved.config.backend)
            opened = self._opening.open(load, replace(resolved, versions=new), self._state.failures)
            loaded, failures = opened.versions, opened.failures
            if not failures:
                wish = _as_opened(load, wish)
                configs = {version: config for version, (_, config) in loaded.items()}
                check_alike(routes_of(resolved.config), stay | configs)
                stay = self._publish(resolved.config, source.name, stay, [started for started, _ in loaded.values()])
                self._state.serves(wish, stay | configs, seen, self._shared_by(wish.name, stay) | opened.shared)
            if opened.works or not failures:
                self._background.want(source.name, opened.works)
        except ShuttingDown:
            raise
        except Exception as error:  # noqa: BLE001 - it is the failure of this model
            failures = dict.fromkeys(new or [None], failure_of(error, source.path))
        finally:
            self._core.withdraw(source.name)
        if failures:
            self._say(wish.name, failures)
            if not self._background.is_about(wish.name):
                # files that a load has brought in vain are of no use
                wish = replace(wish, folder=None)
            self._state.fails(wish, next(iter(failures.values())), seen)
        else:
            for version in new:
                _LOG.info("successfully loaded '%s' version %d", source.name, version)
        return failures

    def _stay(self, load: Load, wish: Wish) -> tuple[Wish, dict[int, ModelConfig]]:
        """As it was changed since it was read, and the versions that stay"""
        known = self._state.actual.get(wish.name)
        if known is None:
            return wish, {}
        wish, versions = load.run(f"model '{wish.name}'", partial(staying, known, wish))
        if self._background.is_about(wish.name):
            return wish, {}
        return wish, {version: known.serving[version] for version in sorted(versions)}

    def reroute(self, known: Known, served: Wish) -> None:
        """Nothing of the model changes but how requests find its versions"""
        config = served.resolved.config if served.resolved else ModelConfig()
        self._state.reroutes(served, self._publish(config, served.name, known.serving, []))

    def _publish(
        self, config: ModelConfig, name: str, stay: Mapping[int, ModelConfig], new: Sequence[StartedVersion]
    ) -> dict[int, ModelConfig]:
        """The new versions beside those that stay, which have the configurations that are answered"""
        routes = routes_of(config)
        known = self._state.actual.get(name)
        shared = self._shared_by(name, stay)
        before = known.served.resolved.config if known and known.served and known.served.resolved else None
        now = {
            version: restated_config(serving, config, before, shared.get(version)) for version, serving in stay.items()
        }
        # what may fail comes first
        self._resize(name, stay, now)
        self._core.publish(name, new, sorted(stay), routes.native() if routes else None)
        for version, stated in now.items():
            if stated != stay[version]:
                self._core.restate(name, version, config_text(stated), stated.SerializeToString())
            scheduling = scheduling_text(stated)
            if scheduling != scheduling_text(stay[version]):
                self._core.reschedule(name, version, scheduling)
                _LOG.info("'%s' version %d stays, and takes over how its requests wait", name, version)
        return now

    def _shared_by(self, name: str, stay: Iterable[int]) -> dict[int, Shared]:
        """What the instances of versions share that stay"""
        known = self._state.actual.get(name)
        return {version: known.shared[version] for version in stay if version in known.shared} if known else {}

    def _resize(self, name: str, stay: Mapping[int, ModelConfig], now: Mapping[int, ModelConfig]) -> None:
        """As many instances as the versions have now; where one cannot have them, all have as many as before"""
        changed: list[int] = []
        try:
            for version, stated in now.items():
                if (instances := instances_of(stated)) != instances_of(stay[version]):
                    self._core.resize(name, version, instances)
                    changed.append(version)
                    _LOG.info("'%s' version %d stays, and has %d instance(s)", name, version, instances)
        except KushiError:
            for version in changed:
                self._core.resize(name, version, instances_of(stay[version]))
            raise

    def unload(self, name: str) -> Wish | None:
        """Takes a model away; what was desired of it"""
        if self._code_watch:
            self._code_watch.forget(name)
        self._background.want(name, ())
        self._core.unload(name)
        known = self._state.forget(name)
        self._repositories.unloaded(name)
        return known

    def suspend(
        self, ensemble: str, versions: Mapping[int, object], reason: KushiError, seen: Mapping[str, int]
    ) -> None:
        """Takes an ensemble away that is to serve again when its models do; `seen` are their changes until now"""
        self._core.unload(ensemble)
        self._log(ensemble, dict.fromkeys(versions, reason))
        for version in versions:
            self._core.suspend(ensemble, version, str(reason))
        self._state.suspends(ensemble, reason, seen)

    def refuse(self, wish: Wish, failures: Failures) -> None:
        """Keeps why a model is not opened at all"""
        self._say(wish.name, failures)
        self._state.refuses(wish, next(iter(failures.values())))

    def miss(self, wish: Wish, reason: ModelNotFound) -> None:
        """The same for one that is in no repository, so that the index has no row of it"""
        _LOG.error("%s: model not found in any model repository", reason)
        self._state.refuses(wish, reason)

    def _say(self, name: str, failures: Failures) -> None:
        self._log(name, failures)
        for version, error in failures.items():
            self._core.fail(name, version, str(error))

    def _log(self, name: str, failures: Failures) -> None:
        for error in failures.values():
            # names and values in it come from files
            error.args = (shortened(self._repositories.shown(str(error))),)
            forget_frames(error)
        for version, error in failures.items():
            named = f"'{name}'" if version is None else f"'{name}' version {version}"
            _LOG.error("failed to load %s: %s", named, error)


def _as_opened(load: Load, wish: Wish) -> Wish:
    """Without contents, where files have changed meanwhile: nobody knows which of the two were opened"""
    if wish.contents and load.run(f"model '{wish.name}'", wish.contents.again) is not wish.contents:
        return replace(wish, contents=None)
    return wish
