"""Locks with models, where what one waits for is given up."""

from __future__ import annotations

import threading
from functools import partial

from runners.control.load import Load, Loads
from runners.control.locks import Locks
from tests.waiting import eventually


def test_an_ensemble_that_is_given_up_takes_the_load_of_its_step_with_it() -> None:
    loads, locks = Loads(0), Locks()
    with locks.take("both", partial(loads.begin, "both")) as both:
        begin = partial(loads.begin, "step", both)
        with locks.take("step", begin, ("both",), both) as step:
            unload = threading.Thread(target=locks.end_load_of, args=("both", 0))
            unload.start()
            eventually(lambda: both.is_given_up and step.is_given_up, "both are given up")
    unload.join()


def test_a_step_that_others_wait_for_goes_on() -> None:
    loads, locks = Loads(0), Locks()
    own: list[Load] = []

    def load_step() -> None:
        with locks.take("step", partial(loads.begin, "step"), ()) as load:
            own.append(load)

    with locks.take("both", partial(loads.begin, "both")) as both:
        begin = partial(loads.begin, "step", both)
        with locks.take("step", begin, ("both",), both) as step:
            other = threading.Thread(target=load_step)
            other.start()
            eventually(lambda: locks._wanted["step"] == 1, "another one waits for it")
            unload = threading.Thread(target=locks.end_load_of, args=("both", 0))
            unload.start()
            eventually(lambda: both.is_given_up, "the ensemble is given up")
            assert not step.is_given_up
        other.join()
    unload.join()
    assert [load.is_given_up for load in own] == [False]
    assert not locks._wanted


def test_a_wait_for_a_step_ends_with_the_load_that_wants_it() -> None:
    loads, locks = Loads(0), Locks()
    refused: list[BaseException] = []

    def load_both() -> None:
        with locks.take("both", partial(loads.begin, "both"), ()) as both:
            try:
                with locks.take("step", partial(loads.begin, "step", both), ("both",), both):
                    pass
            except Exception as error:  # noqa: BLE001 - looked at below
                refused.append(error)

    with locks.take("step", partial(loads.begin, "step")) as step:
        waiting = threading.Thread(target=load_both)
        waiting.start()
        eventually(lambda: locks._wanted["step"] == 1, "the ensemble waits for it")
        locks.end_load_of("both", 0)
        waiting.join()
        assert not step.is_given_up
    assert "currently loading or unloading" in str(refused[0])
