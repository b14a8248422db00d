import gc
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from runners.backends.pinned import PinnedBudget


def test_what_does_not_fit_gets_nothing_until_others_give_back() -> None:
    budget = PinnedBudget(100)
    first, second = budget.ask(60), budget.ask(40)
    assert first
    assert second
    assert (second.bytes, budget.held_bytes, budget.ask(1)) == (40, 100, None)
    first.give_back()
    assert budget.ask(61) is None
    third = budget.ask(60)
    assert third
    assert budget.held_bytes == 100


def test_where_all_is_too_much_the_least_is_given_and_no_less() -> None:
    budget = PinnedBudget(100)
    whole = budget.ask(80, least_bytes=50)
    assert whole
    assert (whole.bytes, budget.room_bytes) == (80, 20)
    least = budget.ask(40, least_bytes=20)
    assert least
    assert (least.bytes, budget.room_bytes) == (20, 0)
    assert budget.ask(2, least_bytes=1) is None


def test_a_share_is_given_back_once() -> None:
    budget = PinnedBudget(100)
    share = budget.ask(100)
    assert share
    share.give_back()
    share.give_back()
    del share
    assert budget.held_bytes == 0


def test_a_share_that_nobody_refers_to_is_given_back() -> None:
    budget = PinnedBudget(100)
    share = budget.ask(100)
    del share
    gc.collect()
    assert budget.held_bytes == 0


def test_no_budget_pins_nothing() -> None:
    budget = PinnedBudget(0)
    assert budget.ask(1) is None
    assert budget.ask(0)


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=30))
def test_what_is_held_is_what_shares_have_and_never_more_than_the_budget(asked: list[tuple[int, bool]]) -> None:
    budget = PinnedBudget(100)
    held = []
    for wanted, gives_back in asked:
        if share := budget.ask(wanted):
            held.append(share)
        if gives_back and held:
            held.pop().give_back()
        assert budget.held_bytes == sum(share.bytes for share in held) <= 100


def test_threads_that_ask_at_the_same_time_get_no_more_than_there_is() -> None:
    budget = PinnedBudget(1000)

    def ask_and_give_back(_: int) -> int:
        most = 0
        for _turn in range(200):
            share = budget.ask(300)
            most = max(most, budget.held_bytes)
            if share:
                share.give_back()
        return most

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(ask_and_give_back, range(8))) <= 900
    assert budget.held_bytes == 0
