"""The plan: for any models, desired and loaded, its steps lead to what is desired, and to nothing else"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from runners.control.plan import Load, Refuse, Suspend, Unload, Wish, plan, waits
from runners.control.state import State
from runners.errors import ConfigInvalid, EngineFailed
from runners.repository.layout import ModelSource
from runners.repository.messages import ModelConfig
from runners.repository.resolve import Resolved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runners.control.plan import Desired, Step

NAMES = ("a", "b", "c", "d", "e", "f")
PLAIN, ENSEMBLES = NAMES[:3], NAMES[3:]


def wish(name: str, key: int, steps: Sequence[str] = ()) -> Wish:
    config = ModelConfig(name=name, max_batch_size=4)
    ends = ("A", "C") if steps else ("INPUT0", "OUTPUT0")
    config.input.add(name=ends[0], data_type="TYPE_INT32", dims=[1])
    config.output.add(name=ends[1], data_type="TYPE_INT32", dims=[1])
    if steps:
        config.platform = "ensemble"
    for number, step in enumerate(steps):
        taken, made = ("A", "C") if step in ENSEMBLES else ("INPUT0", "OUTPUT0")
        one = config.ensemble_scheduling.step.add(model_name=step, model_version=-1)
        one.input_map[taken] = "A" if number == 0 else f"t{number}"
        one.output_map[made] = "C" if number == len(steps) - 1 else f"t{number + 1}"
    return Wish(name, (key, *steps), Resolved(ModelSource(name, Path(name), {1: Path(name)}), config, (1,)))


def refused(name: str, key: int) -> Wish:
    return Wish(name, (key, "wrong"), reason=ConfigInvalid("it is wrong"))


def carry_out(state: State, step: Step, broken: Mapping[str, bool]) -> None:
    match step:
        case Load(name, one) if broken.get(name) or not {*one.steps} <= state.serving().keys():
            state.fails(one, EngineFailed("it is broken"), state.changes(one))
        case Load(_, one):
            assert one.resolved
            state.serves(one, {1: one.resolved.config}, state.changes(one))
        case Refuse(_, one, reason):
            state.refuses(one, reason)
        case Suspend(name, reason, seen):
            state.suspends(name, reason, seen)
        case Unload(name):
            state.forget(name)


def reach(state: State, desired: Desired, broken: Mapping[str, bool]) -> list[Step]:
    """All that was done"""
    done: list[Step] = []
    for _ in range(20):
        steps = plan(state.actual, desired)
        names = [step.name for step in steps]
        assert len(names) == len({*names}), "a model has one step"
        for step in steps:
            if isinstance(step, Load):
                assert step.after == {*names[: names.index(step.name)]} & {*step.wish.steps}, (
                    "what it waits for is first"
                )
        ready = [step for step in steps if not waits(step)]
        if not steps:
            return done
        assert ready, "something can be done"
        for step in ready:
            carry_out(state, step, broken)
        done += ready
    raise AssertionError("it comes to no end")


wishes = st.fixed_dictionaries(
    {},
    optional={
        **{
            name: st.builds(
                lambda key, wrong, name=name: (refused if wrong else wish)(name, key), st.integers(0, 2), st.booleans()
            )
            for name in PLAIN
        },
        **{
            name: st.builds(
                lambda key, steps, name=name: wish(name, key, steps),
                st.integers(0, 2),
                st.lists(
                    st.sampled_from([step for step in NAMES if step != name]), min_size=1, max_size=3, unique=True
                ),
            )
            for name in ENSEMBLES
        },
    },
)
faults = st.dictionaries(st.sampled_from(NAMES), st.booleans())


@given(st.lists(st.tuples(wishes, faults), min_size=1, max_size=4))
def test_what_is_desired_is_reached_and_the_way_ends(changes: list[tuple[dict[str, Wish], dict[str, bool]]]) -> None:
    state = State()
    for desired, broken in changes:
        reach(state, desired, broken)
        actual = state.actual
        assert actual.keys() == desired.keys()
        assert not plan(actual, desired), "there is nothing left to do"
        serving = state.serving()
        for name, one in desired.items():
            if one.reason:
                assert str(actual[name].failure) == "it is wrong"
            elif name in serving and not actual[name].failure and not one.is_ensemble:
                assert actual[name].served == one, "the last content that could be loaded"
            if one.is_ensemble and name in serving:
                assert actual[name].served is not None
                assert {*actual[name].followed.steps} <= serving.keys(), "an ensemble serves with all of its models"


@given(wishes)
def test_without_a_fault_all_serves_that_can(desired: dict[str, Wish]) -> None:
    state = State()
    reach(state, desired, {})

    def can_serve(name: str, above: tuple[str, ...] = ()) -> bool:
        one = desired.get(name)
        if one is None or one.reason or name in above:
            return False
        return all(can_serve(step, (*above, name)) for step in one.steps)

    assert state.serving().keys() == {name for name in desired if can_serve(name)}


@given(wishes)
def test_from_nothing_each_model_is_loaded_or_refused(desired: dict[str, Wish]) -> None:
    steps = plan({}, desired)
    assert {step.name for step in steps} == desired.keys()
    assert all(isinstance(step, Load | Refuse) for step in steps)


def test_an_ensemble_waits_for_a_model_that_leaves_and_serves_again_with_it() -> None:
    state = State()
    both = {"a": wish("a", 0), "d": wish("d", 0, ["a"])}
    reach(state, both, {})
    assert [type(step) for step in reach(state, {"d": both["d"]}, {})] == [Unload, Suspend]
    assert [type(step) for step in reach(state, both, {})] == [Load, Load]
    assert state.serving().keys() == {"a", "d"}


def test_what_failed_is_not_tried_again_until_it_is_another() -> None:
    state = State()
    desired = {"a": wish("a", 0)}
    reach(state, desired, {"a": True})
    assert not plan(state.actual, desired)
    assert [type(step) for step in plan(state.actual, {"a": wish("a", 1)})] == [Load]


def test_a_load_that_fails_leaves_what_served() -> None:
    state = State()
    reach(state, {"a": wish("a", 0), "d": wish("d", 0, ["a"])}, {})
    reach(state, {"a": wish("a", 1), "d": wish("d", 0, ["a"])}, {"a": True})
    assert state.serving().keys() == {"a", "d"}
    assert str(state.failures()["a"]) == "it is broken"


def test_a_model_that_comes_while_its_ensemble_is_looked_at_is_seen_by_the_next_plan() -> None:
    state = State()
    ensemble = wish("d", 0, ["a"])
    before = state.changes(ensemble)
    reach(state, {"a": wish("a", 0)}, {})
    state.fails(ensemble, ConfigInvalid("'a' has no loaded version"), before)
    (step,) = plan(state.actual, {name: known.wish for name, known in state.actual.items()})
    assert isinstance(step, Load)
    assert step.name == "d"


def test_a_content_that_is_refused_takes_the_place_of_none_that_served() -> None:
    """As one that makes a circle, while the models of what served leave and come back"""
    state = State()
    good = {"a": wish("a", 0), "d": wish("d", 0, ["a"]), "e": wish("e", 0, ["d"])}
    reach(state, good, {})
    circle = {**good, "d": wish("d", 1, ["e"])}
    reach(state, circle, {})
    assert state.serving().keys() == {"a", "d", "e"}
    without = {name: one for name, one in circle.items() if name != "a"}
    reach(state, without, {})
    assert not state.serving()
    reach(state, {**without, "a": wish("a", 2)}, {})
    assert state.serving().keys() == {"a", "d", "e"}
