"""`python -m tests.browser.pictures FOLDER`: what the docs show of the page, taken from a service that runs."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

from tests.browser import launched
from tests.browser.test_comfort import SIZES, shown
from tests.e2e.bento import Bento
from tests.serving import ROOT

LETTER: Final = ROOT / "docs" / "images" / "letter.png"
READERS: Final = 4


def main(folder: Path) -> None:
    with Bento(ROOT, KUSHI_ALLOW_PLAYGROUND="true").until_ready() as bento, sync_playwright() as playwright:
        browser = launched(playwright)
        url = f"http://127.0.0.1:{bento.port}"
        for colours in ("light", "dark"):
            for size in SIZES:
                taken(browser, f"{url}/#read", folder / f"read-{size}-{colours}.png", size, colours)
        with ThreadPoolExecutor(READERS) as readers:
            work = [readers.submit(read, bento) for _ in range(READERS)]
            for colours in ("light", "dark"):
                taken(browser, f"{url}/#models", folder / f"models-wide-{colours}.png", "wide", colours, wait=9_000)
            for each in work:
                each.result()
        taken(browser, f"{url}/#models/orientation", folder / "try-wide-light.png", "wide", "light")


def taken(browser: Any, url: str, file: Path, size: str, colours: str, wait: int = 200) -> None:  # noqa: ANN401, PLR0917
    page = browser.new_page(viewport=SIZES[size], color_scheme=colours)
    page.goto(url)
    view = url.partition("#")[2]
    if view == "read":
        page.get_by_role("button", name="A letter").click()
        page.get_by_role("button", name="Copy the text").wait_for()
    else:
        shown(page, view)
    page.wait_for_timeout(wait)
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=file)
    page.close()
    sys.stderr.write(f"{file}\n")


def read(bento: Bento) -> None:
    """Work that the sparklines show, for as long as the pictures take"""
    with bento.client() as client:
        for _ in range(10):
            with LETTER.open("rb") as document:
                client.post("/read", files={"document": document}, timeout=60).raise_for_status()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
