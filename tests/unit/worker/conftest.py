from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runners.worker import server as servers
from tests.unit.worker.answering import AnsweringServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    made = AnsweringServer()
    servers.set_current(made)
    yield made
    servers.set_current(None)
