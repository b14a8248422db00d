"""A browser for all tests, and for each one a page that must not say anything wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import sync_playwright

from tests import standard
from tests.browser import launched
from tests.e2e.bento import Bento
from tests.serving import ROOT, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OpenPage"]

PATIENCE_MS = 20_000


class OpenPage(Protocol):
    """Opens a page; options are those of Playwright for a context."""

    def __call__(self, url: str, /, **options: Any) -> Any: ...  # noqa: ANN401 - of Playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        browser = launched(playwright)
        if browser is None:
            pytest.skip("NOT TESTED: no chromium here, `make test-browser` installs Debian's package")
        yield browser


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:  # noqa: ANN401 - of Playwright
    contexts, wrong = list[Any](), list[str]()

    def opened(url: str, /, **options: Any) -> Any:  # noqa: ANN401 - of Playwright
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"a script failed: {error}"))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
        page.on("request", lambda asked: None if _is_own(asked.url, url) else wrong.append(f"asked {asked.url}"))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


def _is_own(asked: str, url: str) -> bool:
    return urlsplit(asked).scheme in {"blob", "data"} or urlsplit(asked).netloc == urlsplit(url).netloc


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Small models behind `kushi serve`, with the page."""
    repository = standard.standard_repository(tmp_path_factory.mktemp("models"))
    server = Server.start(repository, "--allow-playground=true")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def reader() -> Iterator[Server]:
    """The models of this repository behind `kushi serve`, with the page."""
    server = Server.start(ROOT / "model_repository", "--allow-playground=true")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def bento() -> Iterator[Bento]:
    """The service of this repository, with the page."""
    with Bento(ROOT, KUSHI_ALLOW_PLAYGROUND="true").until_ready() as bento:
        yield bento
