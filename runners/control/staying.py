"""What stays of a model that serves when something else is wanted of it: versions, and what was said about them"""

from dataclasses import replace

from ..repository.kept_routes import KEPT
from ..repository.messages import ModelConfig
from ..repository.resolve import Resolved
from ..repository.supported_fields import ALTERNATIVES
from ..repository.version_routes import NO_ROUTES, check_routes, routes_text, with_routes
from ..version_labels import VERSIONS
from .plan import Known, Told, Wish

__all__ = ["carried", "kept", "restated", "with_told"]


def kept(known: Known, wish: Wish) -> frozenset[int]:
    """
    The versions that serve as they are wanted: they stay as they are, while others come and go. None where nothing has
    changed, and somebody asks for it all the same
    """
    served = known.served
    if not (served and served.resolved and wish.resolved and served.contents and wish.contents):
        return frozenset()
    wanted = {*wish.resolved.versions}
    if served.contents.place != wish.contents.place or served.contents.has_more or wish.contents.has_more:
        return frozenset()
    if not _alike(served.resolved.config, wish.resolved.config) or ALTERNATIVES in wish.resolved.config.parameters:
        return frozenset()
    changed = {_version_of(path, wish.resolved) for path in wish.contents.differences(served.contents)}
    same = wanted & known.serving.keys() - changed
    is_the_same = same == wanted == {*known.serving} and served.resolved.config == wish.resolved.config
    return frozenset() if None in changed or (is_the_same and wish.is_asked_for) else frozenset(same)


def _version_of(path: str, resolved: Resolved) -> int | None:
    """The version that a file of the model belongs to; None where all versions may be made of it"""
    source = resolved.source
    if source.config_file and path == str(source.config_file.relative_to(source.path)):
        # it has been read
        return 0
    if path == KEPT:
        return 0
    first = path.partition("/")[0]
    return int(first) if first.isdecimal() else None


def _alike(one: ModelConfig, other: ModelConfig) -> bool:
    """But for which versions serve, and how requests find them"""
    first, second = (with_routes(config, NO_ROUTES) for config in (one, other))
    for copy in (first, second):
        copy.ClearField("version_policy")
    return bool(first == second)


def carried(known: Known | None, wish: Wish) -> Wish:
    """With what somebody has said about the versions, as long as nothing else is declared"""
    told = known.served.told if known and known.served else None
    if told and wish.resolved and routes_text(wish.resolved.config) == told.declared:
        return with_told(wish, told)
    return wish


def with_told(wish: Wish, told: Told) -> Wish:
    """Raises where that names a version that is not there"""
    if wish.resolved is None:
        return wish
    config = with_routes(wish.resolved.config, told.routes)
    check_routes(config, wish.resolved.versions)
    return replace(wish, resolved=replace(wish.resolved, config=config), told=told)


def restated(serving: ModelConfig, wished: ModelConfig) -> ModelConfig:
    """The complete configuration of a version that stays, as it is called from now on"""
    config = ModelConfig()
    config.CopyFrom(serving)
    config.ClearField("version_policy")
    if wished.HasField("version_policy"):
        config.version_policy.CopyFrom(wished.version_policy)
    config.parameters.pop(VERSIONS, None)
    if VERSIONS in wished.parameters:
        config.parameters[VERSIONS].CopyFrom(wished.parameters[VERSIONS])
    return config
