"""The service of two small models, where a test brings none of its own"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.bento import STARTED, Bento

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import httpx


@pytest.fixture(scope="module")
def bento() -> Iterator[Bento]:
    with Bento().until_ready() as bento:
        yield bento


@pytest.fixture
def client(bento: Bento) -> Iterator[httpx.Client]:
    with bento.client() as client:
        yield client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the ends of the logs of the services that run while a test fails"""
    report = yield
    if report.failed:
        for bento in STARTED:
            lines = [line for line in bento.log.lines if not line.startswith("{")]
            report.sections.append((f"log of the service on port {bento.port}", "\n".join(lines[-60:])))
    return report
