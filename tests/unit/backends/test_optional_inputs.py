"""Inputs that requests may leave out, of frameworks that have none."""

from __future__ import annotations

import pytest

from runners.backends.optional_inputs import refuse_optional_inputs
from runners.errors import ConfigInvalid
from tests.unit.text import INPUT, config

OPTIONAL = 'name: "m" input [ { name: "X" }, { name: "Y" optional: true } ]'


def test_one_that_is_optional_is_named() -> None:
    with pytest.raises(ConfigInvalid, match=r"^model 'm': input 'Y' is optional, and Abacus knows no inputs that are$"):
        refuse_optional_inputs(config(OPTIONAL), "Abacus")


@pytest.mark.parametrize("text", [INPUT, f"{OPTIONAL} max_batch_size: 4"])
def test_others_are_left_to_the_checks_of_all_models(text: str) -> None:
    refuse_optional_inputs(config(text), "Abacus")
