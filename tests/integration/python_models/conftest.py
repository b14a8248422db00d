"""What all tests of Python models have"""

from collections.abc import Iterator

import pytest

from tests.integration.python_models.clients import OPENED

__all__ = ["close_clients"]


@pytest.fixture(autouse=True)
def close_clients() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()
