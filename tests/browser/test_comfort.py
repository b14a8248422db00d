"""By keyboard, with a screen reader, on a phone, in light and dark."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.serving import ROOT

if TYPE_CHECKING:
    from tests.browser.conftest import OpenPage
    from tests.serving import Server

SIZES: Final = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 360, "height": 740}}
VIEWS: Final = ("read", "models", "models/orientation")
LETTER = ROOT / "docs" / "images" / "letter.png"


def shown(page: Any, view: str) -> None:  # noqa: ANN401 - of Playwright
    """Until all of it is there"""
    if view == "read":
        page.locator("#file").set_input_files(LETTER)
        page.get_by_role("button", name="Copy the text").wait_for()
        page.get_by_text("What the models did meanwhile").click()
    elif view == "models":
        page.locator(".badge.ready").first.wait_for()
    else:
        page.get_by_label("Values of x").select_option("random numbers")
        page.get_by_role("button", name="Send").click()
        page.get_by_text("Answered by version").wait_for()


@pytest.mark.parametrize(("view", "size", "colours"), list(itertools.product(VIEWS, SIZES, ("light", "dark"))))
def test_rules_of_accessibility_hold(open_page: OpenPage, reader: Server, view: str, size: str, colours: str) -> None:
    page = open_page(f"{reader.url}/#{view}", viewport=SIZES[size], color_scheme=colours)
    shown(page, view)
    broken = Axe().run(page).response["violations"]
    assert [(rule["id"], node["html"]) for rule in broken for node in rule["nodes"]] == []


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_wider_than_a_phone(open_page: OpenPage, reader: Server, view: str) -> None:
    page = open_page(f"{reader.url}/#{view}", viewport=SIZES["narrow"])
    shown(page, view)
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES["narrow"]["width"]


def test_all_of_it_goes_by_keyboard(open_page: OpenPage, reader: Server) -> None:
    page = open_page(reader.url)
    page.locator("#drop").wait_for()
    reached = list[str]()
    for _ in range(7):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("(document.activeElement.textContent.trim() || document.activeElement.id)"))
    assert reached == [
        *("To the content", "Read a document", "Models", "file", "A letter", "A crooked receipt", "always")
    ]
    page.get_by_role("button", name="A letter").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Copy the text").wait_for()
    page.get_by_role("link", name="Models").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="orientation").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Values of x").focus()
    page.keyboard.type("zeros")
    page.get_by_role("button", name="Send").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Answered by version").wait_for()


def test_the_skip_link_stays_in_its_view_and_a_new_view_has_the_focus(open_page: OpenPage, reader: Server) -> None:
    page = open_page(f"{reader.url}/#models/orientation")
    page.get_by_role("button", name="Send").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.url.endswith("#models/orientation")
    assert page.evaluate("document.activeElement.id") == "main"
    page.get_by_role("link", name="All models").click()
    page.locator(".badge.ready").first.wait_for()
    assert page.evaluate("document.activeElement.id") == "main"
