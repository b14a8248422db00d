"""The models of the repository that are written here are what their scripts write."""

from tests.best_of_windows import BEST, best


def test_the_model_that_keeps_the_best_is_what_its_script_writes() -> None:
    assert BEST.read_bytes() == best()
