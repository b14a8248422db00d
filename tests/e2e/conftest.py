"""The service of two small models, where a test brings none of its own"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.bento import Bento

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


@pytest.fixture(scope="module")
def bento() -> Iterator[Bento]:
    with Bento().until_ready() as bento:
        yield bento


@pytest.fixture
def client(bento: Bento) -> Iterator[httpx.Client]:
    with bento.client() as client:
        yield client
