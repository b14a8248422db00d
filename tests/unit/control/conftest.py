"""What the log says, for tests of what is loaded"""

import logging
from collections.abc import Callable

import pytest


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    caplog.set_level(logging.INFO, "runners")

    def taken() -> str:
        text = "\n".join(record.getMessage() for record in caplog.records)
        caplog.clear()
        return text

    return taken
