"""What stays of a model that serves when something else is wanted of it: versions, and what was said about them"""

from dataclasses import replace

from ..repository.kept_routes import KEPT, WHERE, read_kept
from ..repository.messages import ModelConfig
from ..repository.resolve import Resolved, states_its_own
from ..repository.supported_fields import ALTERNATIVES
from ..repository.version_routes import NO_ROUTES, STATED, check_routes, routes_of, with_routes
from ..version_labels import VERSIONS
from .instances import may_be_resized, resized, without_instances
from .plan import ChangedRoutes, Known, Shared, Wish
from .scheduling import may_be_rescheduled, rescheduled, without_scheduling

__all__ = ["kept", "restated_config", "staying", "with_changed_routes"]


def staying(known: Known, wish: Wish) -> tuple[Wish, frozenset[int]]:
    """What is wanted of a model, as it was changed since, and the versions that stay as they are"""
    wish = with_earlier_changes(known, wish)
    return wish, kept(known, wish)


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
    if (
        not _alike(served.resolved.config, wish.resolved.config, known)
        or ALTERNATIVES in wish.resolved.config.parameters
    ):
        return frozenset()
    changed = {_version_of(path, wish.resolved) for path in wish.contents.differences(served.contents)}
    same = wanted & known.serving.keys() - changed
    has_same_files = same == wanted == {*known.serving}
    is_the_same = has_same_files and served.resolved.config == wish.resolved.config
    loads_all = (has_same_files and wish.is_whole) or (is_the_same and wish.is_asked_for)
    return frozenset() if None in changed or loads_all else frozenset(same)


def _version_of(path: str, resolved: Resolved) -> int | None:
    """The version that a file of the model belongs to; None where all versions may be made of it"""
    source = resolved.source
    if source.config_file and path == str(source.config_file.relative_to(source.path)):
        # it has been read
        return 0
    if path == KEPT:
        # so has that
        return 0
    first = path.partition("/")[0]
    return int(first) if first.isdecimal() else None


def _alike(before: ModelConfig, wished: ModelConfig, known: Known) -> bool:
    """
    But for which versions serve, how requests find them and, where versions take it over, how they wait there and how
    many instances there are
    """
    first, second = (with_routes(config, NO_ROUTES) for config in (before, wished))
    for copy in (first, second):
        copy.ClearField("version_policy")
    if first != second and may_be_rescheduled(before, wished, known.serving.values()):
        first, second = without_scheduling(first), without_scheduling(second)
    if first != second and may_be_resized(before, wished, known.serving, known.shared):
        first, second = without_instances(first), without_instances(second)
    return bool(first == second)


def with_earlier_changes(known: Known, wish: Wish) -> Wish:
    """As somebody has changed how requests find the versions, as long as nothing else is declared since"""
    wish = _as_kept_now(wish)
    earlier = known.served.changed_routes if known.served else None
    if earlier and wish.resolved and (routes_of(wish.resolved.config) or NO_ROUTES) == earlier.declared:
        return with_changed_routes(wish, earlier)
    return wish


def _as_kept_now(wish: Wish) -> Wish:
    """A change may have been kept since the model was read"""
    resolved = wish.resolved
    if resolved is None or states_its_own(resolved.source):
        return wish
    kept = read_kept(resolved.source.path)
    if kept is None or kept.routes == (routes_of(resolved.config) or NO_ROUTES):
        return wish
    config = with_routes(resolved.config, kept.routes)
    check_routes(config, resolved.versions, WHERE)
    return replace(wish, resolved=replace(resolved, config=config))


def with_changed_routes(wish: Wish, changed_routes: ChangedRoutes) -> Wish:
    """Raises where that names a version that is not there"""
    if wish.resolved is None:
        return wish
    config = with_routes(wish.resolved.config, changed_routes.routes)
    check_routes(config, wish.resolved.versions, f"the change of {STATED}")
    return replace(wish, resolved=replace(wish.resolved, config=config), changed_routes=changed_routes)


def restated_config(
    serving: ModelConfig, wished: ModelConfig, before: ModelConfig | None, shared: Shared | None
) -> ModelConfig:
    """
    The complete configuration of a version that stays, as it is called from now on; `before`: what was wished;
    `shared`: what its instances share
    """
    config = ModelConfig()
    takes_over = before is not None and may_be_rescheduled(before, wished, [serving])
    config.CopyFrom(rescheduled(serving, wished) if takes_over else serving)
    if shared and before is not None and may_be_resized(before, wished, {0: serving}, {0: shared}):
        config.CopyFrom(resized(config, wished))
    config.ClearField("version_policy")
    if wished.HasField("version_policy"):
        config.version_policy.CopyFrom(wished.version_policy)
    config.parameters.pop(VERSIONS, None)
    if VERSIONS in wished.parameters:
        config.parameters[VERSIONS].CopyFrom(wished.parameters[VERSIONS])
    return config
