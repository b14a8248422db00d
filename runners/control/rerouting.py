"""
What somebody changes about the versions of a model while it serves: other labels and weights, one version for all, what
was before, or what its configuration says.
"""

from collections.abc import Mapping
from typing import Any

from ..buckets.repositories import Repositories
from ..errors import ConfigInvalid, InternalError
from ..repository.config import read
from ..repository.kept_routes import KEPT, Kept, forget, keep, kept_text, read_kept
from ..repository.layout import ModelSource
from ..repository.overrides import NO_OVERRIDES, Overrides
from ..repository.resolve import states_its_own
from ..repository.version_routes import (
    NO_ROUTES,
    STATED,
    VersionRoutes,
    check_alike,
    is_number,
    json_object,
    routes_from,
    routes_of,
    routes_text,
)
from .plan import ChangedRoutes, Known, Wish
from .staying import with_changed_routes

__all__ = ["STABLE", "check_alone", "rerouted", "stated_routes"]

STABLE = "stable"
"""The label of the version that is promoted"""


def rerouted(known: Known, text: str, repositories: Repositories, *, may_keep: bool) -> Wish:
    """
    What a model is to serve by. The text is an object: what changes of the declaration, and null for what goes; or with
    "promote" a version; or "back" or "forget", true. With "keep" the directory of the model keeps it
    """
    stated = json_object(text, STATED)
    keeps, goes_back, forgets = (_flag(stated, flag) for flag in ("keep", "back", "forget"))
    if (goes_back or forgets) and (stated or goes_back == forgets or (forgets and keeps)):
        raise ConfigInvalid(f"{STATED}: 'back' and 'forget' change all: nothing else can be stated with them")
    served = known.served
    if served is None or served.resolved is None:
        raise InternalError(f"model '{known.wish.name}' serves by nothing")
    source = served.resolved.source
    if keeps or forgets:
        _check_kept(served, source, keeps=keeps, may_keep=may_keep)
    now = routes_of(served.resolved.config) or NO_ROUTES
    if forgets:
        routes = _declared(source)
    elif goes_back:
        routes = _before(served, source)
    else:
        routes = _promoted(now, stated) if "promote" in stated else routes_from({**now.plain, **stated}, STATED)
    declared = served.changed_routes.declared if served.changed_routes else now
    if (keeps or forgets) and not states_its_own(source):
        declared = routes
    wish = with_changed_routes(served, ChangedRoutes(routes, now, declared))
    check_alike(routes, known.serving)
    if keeps:
        repositories.put(source.path, KEPT, kept_text(Kept(routes, now)).encode())
        keep(source.path, Kept(routes, now))
    elif forgets:
        repositories.put(source.path, KEPT, None)
        forget(source.path)
    return wish


def check_alone(overrides: Overrides) -> None:
    """Raises where a load brings more than that"""
    if overrides != NO_OVERRIDES:
        raise ConfigInvalid(f"{STATED} changes nothing else of a model: load it before")


def stated_routes(wish: Wish) -> str:
    """For people"""
    return (wish.resolved and routes_text(wish.resolved.config)) or "their numbers"


def _check_kept(served: Wish, source: ModelSource, *, keeps: bool, may_keep: bool) -> None:
    """Raises where a file of the model may not be written, or deleted"""
    if served.folder:
        raise ConfigInvalid(f"{STATED}: nothing is kept of a model whose files a load has brought")
    if not may_keep and (keeps or read_kept(source.path)):
        raise ConfigInvalid(f"{STATED}: nothing may be kept or deleted (--model-load-files=none)")


def _flag(stated: dict[str, Any], name: str) -> bool:
    flag = stated.pop(name, False)
    if not isinstance(flag, bool):
        raise ConfigInvalid(f"{STATED}: '{name}' is {flag!r}, expected true or false")
    return flag


def _promoted(now: VersionRoutes, stated: Mapping[str, Any]) -> VersionRoutes:
    """One version, by its label or number, for all requests that name none"""
    promoted = stated["promote"]
    if stated.keys() != {"promote"}:
        raise ConfigInvalid(f"{STATED}: 'promote' changes labels and weights: nothing else can be stated with it")
    name = str(promoted) if isinstance(promoted, str | int) and not isinstance(promoted, bool) else ""
    if name not in now.labels and not is_number(name):
        known = ", ".join(f"'{label}'" for label in now.labels) or "none"
        raise ConfigInvalid(
            f"{STATED}: 'promote' is {promoted!r}, expected a label ({known}) or the number of a version"
        )
    labels = {**now.labels, STABLE: now.version(name)}
    return routes_from({**now.plain, "labels": labels, "weights": {STABLE: 1}}, STATED)


def _before(served: Wish, source: ModelSource) -> VersionRoutes:
    """Those that the last change took the place of; a change that was kept is remembered over a restart"""
    if served.changed_routes:
        return served.changed_routes.before
    kept = None if served.folder else read_kept(source.path)
    if kept is None or kept.before is None:
        raise ConfigInvalid(f"{STATED}: there is nothing to go back to: nothing was changed since the model was loaded")
    return kept.before


def _declared(source: ModelSource) -> VersionRoutes:
    """What the configuration says itself"""
    config = read(source.config_file) if source.config_file else source.config
    return routes_of(config) or NO_ROUTES
