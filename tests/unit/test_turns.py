"""Turns with models, where what one waits for is given up."""

from __future__ import annotations

import threading
from functools import partial

from runners.loading import Load, Loads
from runners.turns import Turns
from tests.waiting import eventually


def test_an_ensemble_that_is_given_up_takes_the_load_of_its_step_with_it() -> None:
    loads, turns = Loads(0), Turns()
    with turns.take("both", partial(loads.begin, "both")) as both:
        begin = partial(loads.begin, "step", both)
        with turns.take("step", begin, ("both",), both) as step:
            unload = threading.Thread(target=turns.end_load_of, args=("both", 0))
            unload.start()
            eventually(lambda: both.is_given_up and step.is_given_up, "both are given up")
    unload.join()


def test_a_step_that_others_wait_for_goes_on() -> None:
    loads, turns = Loads(0), Turns()
    own: list[Load] = []

    def load_step() -> None:
        with turns.take("step", partial(loads.begin, "step"), ()) as load:
            own.append(load)

    with turns.take("both", partial(loads.begin, "both")) as both:
        begin = partial(loads.begin, "step", both)
        with turns.take("step", begin, ("both",), both) as step:
            other = threading.Thread(target=load_step)
            other.start()
            eventually(lambda: turns._wanted["step"] == 1, "another one waits for it")
            unload = threading.Thread(target=turns.end_load_of, args=("both", 0))
            unload.start()
            eventually(lambda: both.is_given_up, "the ensemble is given up")
            assert not step.is_given_up
        other.join()
    unload.join()
    assert [load.is_given_up for load in own] == [False]
    assert not turns._wanted


def test_a_wait_for_a_step_ends_with_the_load_that_wants_it() -> None:
    loads, turns = Loads(0), Turns()
    refused: list[BaseException] = []

    def load_both() -> None:
        with turns.take("both", partial(loads.begin, "both"), ()) as both:
            try:
                with turns.take("step", partial(loads.begin, "step", both), ("both",), both):
                    pass
            except Exception as error:  # noqa: BLE001 - looked at below
                refused.append(error)

    with turns.take("step", partial(loads.begin, "step")) as step:
        waiting = threading.Thread(target=load_both)
        waiting.start()
        eventually(lambda: turns._wanted["step"] == 1, "the ensemble waits for it")
        turns.end_load_of("both", 0)
        waiting.join()
        assert not step.is_given_up
    assert "currently loading or unloading" in str(refused[0])
