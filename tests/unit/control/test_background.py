"""What is made behind a model that another form serves meanwhile."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

import pytest

from runners.control.background import Background
from runners.errors import ConfigInvalid, EngineFailed, ShuttingDown
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT_S = 30.0


class Work:
    """Runs until it is let go, or cancelled"""

    def __init__(self, key: str, fault: Exception | None = None) -> None:
        self.key = key
        self.fault = fault
        self.begun = threading.Event()
        self.goes_on = threading.Event()
        self.cancelled = False
        self.runs = 0

    def run(self) -> None:
        self.runs += 1
        self.begun.set()
        assert self.goes_on.wait(WAIT_S)
        if self.fault:
            raise self.fault

    def cancel(self) -> None:
        self.cancelled = True
        self.goes_on.set()


class Control:
    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.load_hook: Callable[[str], None] = lambda name: None

    def load_again(self, name: str) -> None:
        self.loaded.append(name)
        self.load_hook(name)


@pytest.fixture
def control() -> Control:
    return Control()


@pytest.fixture
def unfinished(control: Control) -> Iterator[Background]:
    made = Background()
    made.start(weakref.ref(control))
    yield made
    made.close()


def finished(work: Work) -> None:
    assert work.begun.wait(WAIT_S)
    work.goes_on.set()


def test_a_model_is_loaded_again_when_its_work_is_done(unfinished: Background, control: Control) -> None:
    work = Work("a")
    unfinished.want("m", [work])
    assert control.loaded == []
    finished(work)
    eventually(lambda: control.loaded == ["m"], "it is loaded again")


def test_works_of_several_models_run_one_after_the_other(unfinished: Background, control: Control) -> None:
    first, second = Work("a"), Work("b")
    unfinished.want("m", [first])
    assert first.begun.wait(WAIT_S)
    unfinished.want("n", [second])
    assert not second.begun.is_set()
    finished(first)
    finished(second)
    eventually(lambda: control.loaded == ["m", "n"], "both are loaded again")


@pytest.mark.parametrize("fault", [EngineFailed("no"), ValueError("a mistake"), ConfigInvalid("no")])
def test_a_work_that_fails_loads_nothing_and_ends_no_other(
    unfinished: Background, control: Control, fault: Exception
) -> None:
    failing, other = Work("a", fault), Work("b")
    unfinished.want("m", [failing])
    finished(failing)
    unfinished.want("n", [other])
    finished(other)
    eventually(lambda: control.loaded == ["n"], "the other one is loaded again")


def test_what_nobody_wants_any_more_is_cancelled_and_loads_nothing(unfinished: Background, control: Control) -> None:
    work, other = Work("a"), Work("b")
    unfinished.want("m", [work])
    assert work.begun.wait(WAIT_S)
    unfinished.want("m", [])
    assert work.cancelled
    unfinished.want("n", [other])
    finished(other)
    eventually(lambda: control.loaded == ["n"], "the other one is loaded again")


def test_the_same_work_goes_on_when_its_model_is_loaded_meanwhile(unfinished: Background, control: Control) -> None:
    work, same = Work("a"), Work("a")
    unfinished.want("m", [work])
    assert work.begun.wait(WAIT_S)
    unfinished.want("m", [same])
    assert not work.cancelled
    finished(work)
    eventually(lambda: control.loaded == ["m"], "it is loaded again")
    assert same.runs == 0


def test_what_was_made_and_cannot_be_served_is_not_made_again(unfinished: Background, control: Control) -> None:
    """The load behind it wants the same again, which would go on for ever"""
    work, other = Work("a"), Work("b")
    again = Work("a")
    control.load_hook = lambda name: unfinished.want(name, [again]) if name == "m" else None
    unfinished.want("m", [work])
    finished(work)
    eventually(lambda: control.loaded == ["m"], "it is loaded again")
    unfinished.want("n", [other])
    finished(other)
    eventually(lambda: control.loaded == ["m", "n"], "the other one is loaded again")
    assert again.runs == 0


def test_a_load_that_somebody_asks_for_may_make_it_again(unfinished: Background, control: Control) -> None:
    work, again = Work("a"), Work("a")
    unfinished.want("m", [work])
    finished(work)
    eventually(lambda: control.loaded == ["m"], "it is loaded again")
    unfinished.want("m", [again])
    finished(again)
    eventually(lambda: control.loaded == ["m", "m"], "it is loaded again")


@pytest.mark.parametrize("fault", [ShuttingDown("closed"), ConfigInvalid("no"), ValueError("a mistake")])
def test_a_load_that_fails_ends_nothing(unfinished: Background, control: Control, fault: Exception) -> None:
    def load(name: str) -> None:
        if name == "m":
            raise fault

    control.load_hook = load
    work, other = Work("a"), Work("b")
    unfinished.want("m", [work])
    finished(work)
    unfinished.want("n", [other])
    finished(other)
    eventually(lambda: control.loaded == ["m", "n"], "the other one is loaded again")


def test_the_end_cancels_what_runs(control: Control) -> None:
    unfinished = Background()
    unfinished.start(weakref.ref(control))
    work = Work("a")
    unfinished.want("m", [work])
    assert work.begun.wait(WAIT_S)
    unfinished.close()
    assert work.cancelled
    assert control.loaded == []


def test_a_control_that_is_gone_loads_nothing() -> None:
    control = Control()
    unfinished = Background()
    unfinished.start(weakref.ref(control))
    work = Work("a")
    unfinished.want("m", [work])
    del control
    finished(work)
    unfinished.close()


def test_what_was_cancelled_is_not_taken_for_the_same_that_is_wanted_later(control: Control) -> None:
    """It ends without a fault a while later, and has made nothing"""

    class Stubborn(Work):
        def cancel(self) -> None:
            self.cancelled = True

    unfinished = Background()
    unfinished.start(weakref.ref(control))
    old, new = Stubborn("a"), Work("a")
    unfinished.want("m", [old])
    assert old.begun.wait(WAIT_S)
    unfinished.want("m", [])
    unfinished.want("m", [new])
    finished(old)
    finished(new)
    eventually(lambda: control.loaded == ["m"], "it is loaded again, once")
    assert new.runs == 1
    unfinished.close()


def test_what_has_changed_meanwhile_is_made_too(unfinished: Background, control: Control) -> None:
    first, changed = Work("a"), Work("b")
    control.load_hook = lambda name: unfinished.want(name, [changed] if control.loaded == ["m"] else [])
    unfinished.want("m", [first])
    finished(first)
    finished(changed)
    eventually(lambda: control.loaded == ["m", "m"], "it is loaded again for each")


def test_what_failed_is_not_made_again_behind_what_was_made(
    unfinished: Background, control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    failing, other, again, last = Work("a", EngineFailed("no")), Work("b"), Work("a"), Work("c")
    control.load_hook = lambda name: unfinished.want(name, [again]) if name == "m" else None
    unfinished.want("m", [failing, other])
    finished(failing)
    finished(other)
    unfinished.want("n", [last])
    finished(last)
    eventually(lambda: control.loaded == ["m", "n"], "each is loaded once")
    assert again.runs == 0
    assert "cannot be served" not in caplog.text


def test_works_for_files_that_always_change_have_an_end(
    unfinished: Background, control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    made = [Work("0")]
    made[0].goes_on.set()

    def another(name: str) -> None:
        made.append(Work(str(len(made))))
        made[-1].goes_on.set()
        unfinished.want(name, made[-1:])

    control.load_hook = another
    unfinished.want("m", made)
    eventually(lambda: "its files change while something is made of them" in caplog.text, "it ends")
    assert len(control.loaded) == 9
    assert made[-1].runs == 0
