"""
The plan: what has to be done so that what is loaded becomes what is desired. A pure function of the two.

Whoever carries out a plan does those steps first that wait for no other one, and asks again: what an ensemble needs of
its models is known for certain when they are loaded.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from ..errors import ConfigInvalid, KushiError, ModelNotFound
from ..repository.contents import Contents
from ..repository.ensemble import MOST_IN_A_ROW, check_composing, composing, is_ensemble, too_deep
from ..repository.messages import ModelConfig
from ..repository.resolve import Resolved
from ..repository.version_routes import VersionRoutes

__all__ = [
    "Actual",
    "ChangedRoutes",
    "Desired",
    "Known",
    "Load",
    "Refuse",
    "Shared",
    "Step",
    "Suspend",
    "Unload",
    "Wish",
    "changes",
    "follow",
    "plan",
    "waits",
]


@dataclass(frozen=True)
class ChangedRoutes:
    """How requests are to find the versions of a model, as somebody has said while it served"""

    routes: VersionRoutes
    before: VersionRoutes
    """The ones that these took the place of"""
    declared: VersionRoutes
    """What the configuration says itself: where it says something else, that is newer"""


@dataclass(frozen=True)
class Wish:
    """One model that is to serve, or that would be if its configuration were right"""

    name: str
    key: object
    """Another one stands for another content: the model is loaded again"""
    resolved: Resolved | None = None
    reason: KushiError | None = None
    """Why it cannot be loaded, where nothing was resolved"""
    contents: Contents | None = field(default=None, compare=False)
    """Of its folder, before anything of it was read"""
    override: ModelConfig | None = field(default=None, compare=False)
    """What took the place of the configuration in its folder"""
    folder: object = field(default=None, compare=False)
    """What its folder goes with, where a load has brought its files"""
    is_asked_for: bool = field(default=False, compare=False)
    """Somebody wants it to be loaded, whether it has changed or not"""
    is_whole: bool = field(default=False, compare=False)
    """All its versions are to be loaded again, also where no file of it has changed"""
    changed_routes: ChangedRoutes | None = field(default=None, compare=False)
    """How somebody has changed, since then, how requests find its versions"""

    @property
    def steps(self) -> list[str]:
        """The models that it asks, if it is an ensemble"""
        return composing(self.resolved.config) if self.is_ensemble and self.resolved else []

    @property
    def is_ensemble(self) -> bool:
        return self.resolved is not None and is_ensemble(self.resolved.config)


@dataclass(frozen=True)
class Shared:
    """What the instances of a version share"""

    threads: int
    """Of each, as the version was opened"""
    instances: int
    """That there were then"""
    most: int
    """Instances that there may be"""


@dataclass(frozen=True)
class Known:
    """What became of one model"""

    wish: Wish
    """What was carried out last, whether it succeeded or not"""
    serving: Mapping[int, ModelConfig] = field(default_factory=dict)
    """The versions that serve, with their complete configurations; of an earlier wish where the last one failed"""
    shared: Mapping[int, Shared] = field(default_factory=dict)
    """What the instances of each version share, where there may be more or fewer of them"""
    failure: KushiError | None = None
    """Of the last wish"""
    served: Wish | None = None
    """What it serves by, or served"""
    change: int = 0
    """A number that no other change of any model has: it began to serve, or ceased to"""
    seen: Mapping[str, int] = field(default_factory=dict)
    """Of an ensemble: the changes of its models before it was looked at last"""
    is_refused: bool = False
    """The last wish was none that could be carried out, as a wrong configuration or a circle"""

    @property
    def followed(self) -> Wish:
        """
        What an ensemble is to serve by when its models change: what it serves by now; where it does not serve, what was
        asked for last, if that is possible at all
        """
        if self.served and (self.serving or self.is_refused or self.wish.resolved is None):
            return self.served
        return self.wish


Desired = Mapping[str, Wish]
Actual = Mapping[str, Known]


@dataclass(frozen=True)
class Unload:
    """A model that nobody desires any more"""

    name: str


@dataclass(frozen=True)
class Refuse:
    """A model that cannot be loaded, which is known before anything of it is opened"""

    name: str
    wish: Wish
    reason: KushiError


@dataclass(frozen=True)
class Load:
    """A model is loaded, beside what serves of it"""

    name: str
    wish: Wish
    after: frozenset[str] = frozenset()
    """Models whose steps come first"""


@dataclass(frozen=True)
class Suspend:
    """An ensemble ceases to serve, until its models are as it needs them"""

    name: str
    reason: KushiError
    seen: Mapping[str, int]
    """The changes of its models, of which that is the reason"""


Step = Unload | Refuse | Load | Suspend


def waits(step: Step) -> bool:
    """Whether other steps come first"""
    return isinstance(step, Load) and bool(step.after)


def plan(actual: Actual, desired: Desired) -> list[Step]:
    """What is to be done, each behind what it waits for"""
    steps: list[Step] = [Unload(name) for name in sorted(actual) if name not in desired]
    fresh = {
        name: wish for name, wish in sorted(desired.items()) if name not in actual or actual[name].wish.key != wish.key
    }
    for name, wish in fresh.items():
        if wish.reason:
            steps.append(Refuse(name, wish, wish.reason))
        elif not wish.is_ensemble:
            steps.append(Load(name, wish))
    ensembles = {name: _current(wish, actual, is_fresh=name in fresh) for name, wish in desired.items()}
    ordered, circles = _in_order({name: wish.steps for name, wish in ensembles.items() if wish.is_ensemble})
    steps += [Refuse(name, fresh[name], reason) for name, reason in circles.items() if name in fresh]
    depths: dict[str, int] = {}
    changing = {step.name for step in steps}
    for name in ordered:
        wish = ensembles[name]
        depths[name] = 1 + max((depths.get(step, 0) for step in wish.steps), default=0)
        for step in _of_ensemble(wish, depths[name], actual, desired, changing, is_fresh=name in fresh):
            steps.append(step)
            changing.add(name)
    return steps


def _current(wish: Wish, actual: Actual, *, is_fresh: bool) -> Wish:
    return wish if is_fresh else actual[wish.name].followed


def follow(ensemble: str, actual: Actual) -> Step | None:
    """What is to be done with an ensemble that was carried out before, whose models may have changed since"""
    return next(_followed(actual[ensemble], actual), None) if ensemble in actual else None


def _of_ensemble(
    wish: Wish, depth: int, actual: Actual, desired: Desired, changing: set[str], *, is_fresh: bool
) -> Iterator[Step]:
    first = frozenset(wish.steps) & changing
    if is_fresh:
        missing = sorted({step for step in wish.steps if _is_nowhere(step, desired)})
        if missing:
            yield Refuse(wish.name, wish, _not_available(wish.name, missing))
        elif depth > MOST_IN_A_ROW:
            yield Refuse(wish.name, wish, too_deep(wish.name))
        else:
            yield Load(wish.name, wish, first)
    elif not first:
        yield from _followed(actual[wish.name], actual)


def _is_nowhere(name: str, desired: Desired) -> bool:
    return name not in desired or isinstance(desired[name].reason, ModelNotFound)


def _followed(known: Known, actual: Actual) -> Iterator[Step]:
    """It is looked at when one of its models has begun or ceased to serve since it was looked at last"""
    wish = known.followed
    if wish.resolved is None or not wish.is_ensemble or known.seen == changes(wish, actual):
        return
    around = {name: actual[name] for name in wish.steps if name in actual}
    serving = {name: one.serving for name, one in around.items() if one.serving}
    failures = {name: one.failure for name, one in around.items() if one.failure}
    try:
        check_composing(wish.resolved.config, serving, failures)
    except ConfigInvalid as reason:
        if known.serving:
            yield Suspend(wish.name, reason, changes(wish, actual))
    else:
        if not known.serving:
            yield Load(wish.name, wish)


def changes(ensemble: Wish, actual: Actual) -> Mapping[str, int]:
    """The last changes of the models of an ensemble"""
    return {step: actual[step].change for step in ensemble.steps if step in actual}


def _in_order(ensembles: Mapping[str, Iterable[str]]) -> tuple[list[str], dict[str, ConfigInvalid]]:
    """Ensembles behind those that they are made of, and the ones in a circle with the reason"""
    left = dict(ensembles)
    failed: dict[str, ConfigInvalid] = {}
    while True:
        graph = {name: [step for step in steps if step in left] for name, steps in left.items()}
        try:
            return list(TopologicalSorter(graph).static_order()), failed
        except CycleError as error:
            # each is named behind what it is made of, the first again at the end
            ring = list(reversed(error.args[1]))[:-1]
            begin = ring.index(min(ring))
            failed |= dict.fromkeys(ring, _circle([*ring[begin:], *ring[: begin + 1]]))
            left = {name: steps for name, steps in left.items() if name not in ring}


def _circle(ring: Iterable[str]) -> ConfigInvalid:
    return ConfigInvalid(f"circular dependency between ensembles: {' -> '.join(ring)}")


def _not_available(ensemble: str, models: Iterable[str]) -> ConfigInvalid:
    return ConfigInvalid(
        f"ensemble {ensemble} contains models that are not available or ambiguous: {', '.join(models)}"
    )
