from concurrent.futures import Future
from contextvars import copy_context

import pytest

from runners.errors import ModelUnavailable
from runners.wanted import check_wanted, is_given_up, work_for


def test_what_nobody_began_is_wanted() -> None:
    assert not is_given_up()
    check_wanted()


def test_a_step_is_wanted_until_it_is_given_up() -> None:
    def working() -> None:
        step: Future[None] = Future()
        work_for(step)
        check_wanted()
        step.cancel()
        assert is_given_up()
        with pytest.raises(ModelUnavailable, match="the load was given up"):
            check_wanted()

    copy_context().run(working)
    assert not is_given_up()
