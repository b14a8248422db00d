"""
What somebody says about the versions of a model while it serves: other labels and weights, one version for all, or what
was said before.
"""

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigInvalid, ModelNotReady
from ..repository.kept_routes import Kept, keep, read_kept
from ..repository.overrides import NO_OVERRIDES, Overrides
from ..repository.version_routes import (
    NO_ROUTES,
    VersionRoutes,
    json_object,
    routes_from,
    routes_of,
    routes_text,
)
from ..version_labels import VERSIONS
from .plan import Known, Told, Wish
from .staying import with_told

__all__ = ["STABLE", "check_alone", "rerouted", "stated_routes"]

STABLE = "stable"
"""The label of the version that is promoted"""
_WHERE = f"parameter '{VERSIONS}'"


def rerouted(name: str, known: Known | None, text: str) -> Wish:
    """
    What the model is to serve by, which is kept in its directory where the text says so: an object with what changes of
    the declaration, None for what goes, or with "promote", a version, or "back", true
    """
    stated = json_object(text, _WHERE)
    keeps, goes_back = (_flag(stated, flag) for flag in ("keep", "back"))
    served = known.served if known and known.serving else None
    if served is None or served.resolved is None:
        raise ModelNotReady(f"the versions of model '{name}' cannot be changed: it does not serve", model=name)
    folder = served.resolved.source.path
    if keeps and served.folder:
        raise ConfigInvalid(f"{_WHERE}: nothing can be kept of model '{name}', whose files a load has brought")
    now = routes_of(served.resolved.config) or NO_ROUTES
    if not goes_back:
        routes = _promoted(now, stated) if "promote" in stated else routes_from({**now.plain, **stated}, _WHERE)
    elif stated:
        raise ConfigInvalid(f"{_WHERE}: 'back' changes all: nothing else can be stated with it")
    else:
        routes = _before(served)
    declared = served.told.declared if served.told else routes_text(served.resolved.config)
    wish = with_told(served, Told(routes, now, declared))
    if keeps:
        keep(folder, Kept(routes, now))
        wish = with_told(served, Told(routes, now, routes.text if routes != NO_ROUTES else ""))
    return wish


def check_alone(overrides: Overrides) -> None:
    """Raises where a load brings more than that"""
    if overrides != NO_OVERRIDES:
        raise ConfigInvalid(f"{_WHERE} changes nothing else of a model: load it before")


def stated_routes(wish: Wish) -> str:
    """For people"""
    return (wish.resolved and routes_text(wish.resolved.config)) or "their numbers"


def _flag(stated: dict[str, Any], name: str) -> bool:
    flag = stated.pop(name, False)
    if not isinstance(flag, bool):
        raise ConfigInvalid(f"{_WHERE}: '{name}' is {flag!r}, expected true or false")
    return flag


def _promoted(now: VersionRoutes, stated: Mapping[str, Any]) -> VersionRoutes:
    """One version, by its label or number, for all requests that name none"""
    promoted = stated["promote"]
    if stated.keys() != {"promote"}:
        raise ConfigInvalid(f"{_WHERE}: 'promote' changes labels and weights: nothing else can be stated with it")
    version = now.labels.get(promoted) if isinstance(promoted, str) else None
    if version is None and str(promoted).isdecimal():
        version = int(promoted)
    if version is None:
        known = ", ".join(f"'{label}'" for label in now.labels) or "none"
        raise ConfigInvalid(f"{_WHERE}: 'promote' is {promoted!r}, expected a label ({known}) or a version's number")
    return routes_from({**now.plain, "labels": {**now.labels, STABLE: version}, "weights": {STABLE: 1}}, _WHERE)


def _before(served: Wish) -> VersionRoutes:
    """Those that the last change took the place of; a change that was kept is remembered over a restart"""
    if served.told:
        return served.told.before
    kept = read_kept(served.resolved.source.path) if served.resolved and not served.folder else None
    if kept is None or kept.before is None:
        raise ConfigInvalid(f"{_WHERE}: there is nothing to go back to: nothing was changed since the model was loaded")
    return kept.before
