"""JSON that a model brings: numbers that take long to read are not read"""

import pytest

from runners.bounded_json import MOST_DIGITS, read_json


def test_what_others_write_is_read_as_it_is() -> None:
    text = '{"a": [-9223372036854775808, 18446744073709551615, 1.7976931348623157e+308, -0.5], "b": "' + "9" * 99 + '"}'
    whole = {"a": [-(2**63), 2**64 - 1, 1.7976931348623157e308, -0.5], "b": "9" * 99}
    assert read_json(text) == read_json(text.encode()) == whole


@pytest.mark.parametrize("number", ["1" * 65, "-" + "1" * 64, "0." + "1" * 63, "1" * 5000, "1e" + "0" * 4999])
def test_a_long_number_is_refused_with_its_length(number: str) -> None:
    assert len(number) > MOST_DIGITS
    with pytest.raises(ValueError, match=f"^a number has {len(number)} characters, expected at most 64$"):
        read_json(f"[{number}]")
    assert read_json(number[:MOST_DIGITS]) is not None
