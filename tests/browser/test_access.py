"""Who sees the page: nobody unless it is asked for, and nothing of the server without the token that it asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import models
from tests.serving import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.browser.conftest import OpenPage

ALL = "health,metadata,inference,shared-memory,model-config,model-repository,statistics,trace,logging"
NAME = "very_secret_model"
TOKEN = "open sesame"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("locked")
    models.write_add_sub(repository, NAME)
    arguments = ["--allow-playground=true", f"--http-restricted-api={ALL}:x-key={TOKEN}"]
    server = Server.start(repository, *arguments, ready=False)
    try:
        yield server
    finally:
        server.stop()


def test_without_the_token_nothing_is_seen(open_page: OpenPage, locked: Server) -> None:
    """The page and its files are the same for every server; whatever else it asks for is refused"""
    answers = dict[str, tuple[int, str]]()
    page = open_page(f"{locked.url}/playground/icon.svg")
    page.on(
        "response", lambda found: answers.update({found.url.removeprefix(locked.url): (found.status, found.text())})
    )
    page.goto(locked.url)
    page.get_by_text("This API is restricted, expecting header 'x-key'").wait_for()
    assert NAME not in page.content()
    refused = {path for path, (status, _) in answers.items() if status != 200}
    assert refused == {"/v2"}
    assert all(path == "/" or path.startswith("/playground/") for path in answers.keys() - refused)
    assert not any(NAME in text for _, text in answers.values())


def test_with_the_token_all_is_seen_and_a_wrong_one_is_said(open_page: OpenPage, locked: Server) -> None:
    page = open_page(locked.url)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Enter the token").click()
    page.get_by_label("x-key").fill("串")
    page.get_by_role("button", name="Use it").click()
    page.get_by_text("This token cannot be sent").wait_for()
    page.get_by_label("x-key").fill("wrong")
    page.get_by_role("button", name="Use it").click()
    page.get_by_text("The server does not take this token.").wait_for()
    page.get_by_label("x-key").fill(TOKEN)
    page.get_by_role("button", name="Use it").click()
    page.get_by_role("link", name=NAME).click()
    page.get_by_role("button", name="Send").click()
    page.get_by_text("Answered by version 1").wait_for()
    for language, said in {"curl": "-H 'x-key: THE TOKEN'", "Python": 'headers={"x-key": "THE TOKEN"}'}.items():
        shown = page.locator("details", has_text=f"The same with {language}")
        assert said in shown.locator("code").text_content()
    assert TOKEN not in page.url
    assert page.evaluate("localStorage.length + document.cookie.length") == 0
    assert TOKEN not in page.content()


@pytest.mark.parametrize(
    "place", ["models/50%", "models/../x", "models/reader/1%2F..%2F..%2Fanything", "models/%2e%2e/1"]
)
def test_an_address_leads_to_views_alone(open_page: OpenPage, server: Server, place: str) -> None:
    """Whoever makes a link would else choose what is asked with the tokens of whoever follows it"""
    asked = list[str]()
    page = open_page(f"{server.url}/playground/icon.svg")
    page.on("request", lambda request: asked.append(request.url.removeprefix(server.url)))
    page.goto(f"{server.url}/#{place}")
    page.get_by_role("link", name="add_sub", exact=True).wait_for()
    assert not [path for path in asked if "anything" in path or "/models/x" in path]
