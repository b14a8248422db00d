"""All models at work, as they are while one looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.http as httpclient

from tests import models
from tests.serving import Server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser.conftest import OpenPage

MOST_A_SECOND = 1
COUNTED = "async () => [...await (await import('/playground/statistics.js')).statistics()]"
GROWN = """async before => {
    const { since, statistics } = await import('/playground/statistics.js');
    return since(new Map(before), await statistics()).find(({ name }) => name === 'add_sub');
}"""


def card(page: Any, model: str) -> Any:  # noqa: ANN401 - of Playwright
    name = page.get_by_role("link", name=model, exact=True)
    return page.locator(".card").filter(has=name).first


def ask(server: Server, times: int) -> None:
    tensor = np.ones((1, 16), np.int32)
    inputs = [httpclient.InferInput(name, tensor.shape, "INT32") for name in ("INPUT0", "INPUT1")]
    for each in inputs:
        each.set_data_from_numpy(tensor)
    with httpclient.InferenceServerClient(f"{server.http[0]}:{server.http[1]}") as client:
        for _ in range(times):
            client.infer("add_sub", inputs)


def test_what_a_model_answers_is_seen(open_page: OpenPage, server: Server) -> None:
    page = open_page(f"{server.url}/#models")
    shown = card(page, "add_sub")
    shown.get_by_text("ready").wait_for()
    answered = shown.locator("dd").nth(3)
    page.wait_for_function("cell => cell.textContent !== '–'", arg=answered.element_handle())
    before = int(answered.inner_text().replace(",", ""))
    ask(server, 20)
    page.wait_for_function(
        "([cell, number]) => Number(cell.textContent.replace(',', '')) === number",
        arg=[answered.element_handle(), before + 20],
    )
    queue, compute = (shown.locator("dd").nth(place).inner_text() for place in (0, 1))
    assert queue.endswith(" ms")
    assert compute.endswith(" ms")


def test_computing_takes_no_longer_than_the_requests(open_page: OpenPage, server: Server) -> None:
    """Requests that share a batch have its time each"""
    tensor = np.ones((1, 16), np.int32)
    inputs = [httpclient.InferInput(name, tensor.shape, "INT32") for name in ("INPUT0", "INPUT1")]
    for each in inputs:
        each.set_data_from_numpy(tensor)
    page = open_page(f"{server.url}/#models")
    before = page.evaluate(COUNTED)
    with httpclient.InferenceServerClient(f"{server.http[0]}:{server.http[1]}", concurrency=16) as client:
        for answer in [client.async_infer("add_sub", inputs) for _ in range(200)]:
            answer.get_result()
    grown = page.evaluate(GROWN, before)
    assert grown["requests"] == 200
    assert 0 < grown["computeMs"] <= grown["tookMs"]


@pytest.mark.clock
def test_one_request_a_second_is_the_most(open_page: OpenPage, server: Server) -> None:
    page = open_page(f"{server.url}/#models")
    card(page, "add_sub").wait_for()
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(5_000)
    assert 0 < len(asked) <= 5 * MOST_A_SECOND + 1
    page.get_by_role("link", name="add_sub", exact=True).click()
    page.get_by_role("button", name="Send").wait_for()
    asked.clear()
    page.wait_for_timeout(2_500)
    assert asked == []


def test_models_come_go_and_say_why_they_do_not_serve(open_page: OpenPage, tmp_path: Path) -> None:
    models.write_add_sub(tmp_path)
    models.write_add_sub(tmp_path, "later")
    models.write(tmp_path, "broken", b"no model")
    arguments = ["--allow-playground=true", "--model-control-mode=explicit", "--load-model=add_sub"]
    server = Server.start(tmp_path, *arguments)
    try:
        page = open_page(f"{server.url}/#models")
        card(page, "add_sub").get_by_text("ready").wait_for()
        with httpclient.InferenceServerClient(f"{server.http[0]}:{server.http[1]}") as client:
            client.load_model("later")
            with pytest.raises(Exception, match="broken"):
                client.load_model("broken")
            client.unload_model("add_sub")
        card(page, "later").get_by_text("ready").wait_for()
        card(page, "broken").locator(".failure").wait_for()
        card(page, "add_sub").get_by_text("unavailable").wait_for()
    finally:
        server.stop()


def test_a_server_that_ends_is_said_and_one_that_is_back_is_seen(open_page: OpenPage, tmp_path: Path) -> None:
    models.write_add_sub(tmp_path)
    server = Server.start(tmp_path, "--allow-playground=true")
    port = server.http[1]
    page = open_page(f"{server.url}/#models")
    card(page, "add_sub").wait_for()
    server.stop()
    page.get_by_text("The server does not answer").wait_for()
    again = Server.start(tmp_path, "--allow-playground=true", f"--http-port={port}")
    try:
        page.locator("#models [role=alert]").wait_for(state="detached")
    finally:
        again.stop()
