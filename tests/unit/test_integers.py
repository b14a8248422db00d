import pytest

from runners.integers import INT64_MAX, integer


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("007", 7), ("-12", -12), ("+3", 3), (str(2**63 - 1), 2**63 - 1)]
)
def test_digits_are_a_number(text: str, number: int) -> None:
    assert integer(text) == number


@pytest.mark.parametrize("text", ["", "-", "1_0", " 1", "1\n", "١", "１", "1.0", "1e3", "0x10", "9" * 5000])
def test_anything_else_is_none(text: str) -> None:
    assert integer(text) is None


def test_a_number_outside_the_bounds_is_none() -> None:
    assert integer("5", most=4) is None
    assert integer("-1", least=0) is None
    assert integer(str(INT64_MAX + 1)) is None
    assert integer("4", 4, 4) == 4
