"""The layer over CUDA's driver, on the one that stands in."""

from __future__ import annotations

import pytest

from tests.cuda_layer import CHECKS


@pytest.mark.parametrize("check", list(CHECKS))
def test_on_the_driver_that_stands_in(check: str) -> None:
    CHECKS[check]()
