"""`python -m tests.browser.paint`: how soon the page is seen, and how many bytes of it were loaded for that."""

from __future__ import annotations

import statistics
import sys

from playwright.sync_api import sync_playwright

from tests.browser import launched
from tests.serving import ROOT, Server

LOOKS = 15
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
BYTES = """[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .filter(({ entryType, name }) => entryType === 'navigation' || name.includes('/playground/'))
    .reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0)"""


def main() -> None:
    server = Server.start(ROOT / "model_repository", "--allow-playground=true")
    try:
        with sync_playwright() as playwright:
            browser = launched(playwright)
            times, loaded = [], 0
            for _ in range(LOOKS):
                # nothing is in the cache of a new context
                page = browser.new_context().new_page()
                page.goto(server.url)
                page.locator("#drop").wait_for()
                times.append(page.evaluate(PAINTED))
                loaded = page.evaluate(BYTES)
                page.context.close()
    finally:
        server.stop()
    sys.stdout.write(
        f"first contentful paint: median {statistics.median(times):.0f} ms, {min(times):.0f} to {max(times):.0f} ms of "
        f"{LOOKS}; {loaded} bytes\n"
    )


if __name__ == "__main__":
    main()
