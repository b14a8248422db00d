"""A document is read: by the service of this repository, and by the model of a server without one."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from tests.e2e.pictures import encoded, written
from tests.pdfs import pdf, said
from tests.raw_http import fetch
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.browser.conftest import OpenPage
    from tests.e2e.bento import Bento
    from tests.serving import Server

LETTER = ROOT / "docs" / "images" / "letter.png"
PAPER = 612, 792
LINES = "Kushi & Co.\nTo whom it may concern,\nthe skewer holds many pieces over one fire."


@pytest.fixture(params=["service", "model"])
def url(request: pytest.FixtureRequest) -> str:
    """Where both are: the service streams its pages, the model answers all at once"""
    if request.param == "service":
        bento: Bento = request.getfixturevalue("bento")
        return f"http://127.0.0.1:{bento.port}"
    reader: Server = request.getfixturevalue("reader")
    return reader.url


def read(page: Any, file: Path | dict[str, Any]) -> None:  # noqa: ANN401 - of Playwright
    """Chooses a document, and waits until it is read"""
    page.locator("#file").set_input_files(file)
    page.get_by_role("button", name="Copy the text").wait_for()


def document(name: str, kind: str, data: bytes) -> dict[str, Any]:
    return {"name": name, "mimeType": kind, "buffer": data}


def saved(page: Any, button: str) -> bytes:  # noqa: ANN401 - of Playwright
    with page.expect_download() as found:
        page.get_by_role("button", name=button, exact=True).click()
    return Path(found.value.path()).read_bytes()


def files(page: Any, name: str, data: bytes) -> Any:  # noqa: ANN401 - of Playwright
    return page.evaluate_handle(
        "([name, bytes]) => { const made = new DataTransfer(); made.items.add(new File([new Uint8Array(bytes)], name, "
        "{ type: 'image/png' })); return made; }",
        [name, list(data)],
    )


def test_words_are_framed_and_readable(open_page: OpenPage, url: str) -> None:
    page = open_page(url, permissions=["clipboard-read", "clipboard-write"])
    read(page, LETTER)
    lines = page.locator(".text p").all_inner_texts()
    assert "\n".join(line.strip() for line in lines).startswith(LINES)
    words = " ".join(lines).split()
    assert page.locator("figure polygon").count() == len(words) > 30
    picture, frames = page.locator("figure img").bounding_box(), page.locator("figure svg").bounding_box()
    assert picture == frames
    assert picture["width"] / picture["height"] == pytest.approx(
        page.locator("img[alt='Page 1']").evaluate("image => image.naturalWidth / image.naturalHeight"), rel=0.01
    )
    page.get_by_role("button", name="Copy the text").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith(LINES)


def test_each_form_can_be_saved(open_page: OpenPage, url: str) -> None:
    page = open_page(url)
    read(page, LETTER)
    assert saved(page, "Text").decode().startswith(LINES)
    assert json.loads(saved(page, "JSON"))[0]["lines"][0]["text"] == "Kushi & Co."
    assert "the skewer holds many pieces" in saved(page, "Markdown").decode()


def test_the_service_makes_a_searchable_pdf(open_page: OpenPage, bento: Bento) -> None:
    page = open_page(f"http://127.0.0.1:{bento.port}")
    read(page, LETTER)
    assert saved(page, "Searchable PDF").startswith(b"%PDF-")


def test_words_are_searched_and_found_one_after_the_other(open_page: OpenPage, reader: Server) -> None:
    page = open_page(reader.url)
    read(page, LETTER)
    search = page.get_by_label("Search in the words")
    search.fill("the")
    page.get_by_text("1 of 2").wait_for()
    found = page.locator(".text .hit")
    assert {"the" in text.lower() for text in found.all_inner_texts()} == {True}
    assert page.locator("polygon.hit").count() == found.count() == 2
    search.press("Enter")
    page.get_by_text("2 of 2").wait_for()
    search.fill("nowhere")
    page.get_by_text("0 found").wait_for()


def test_a_word_and_its_frame_are_marked_together(open_page: OpenPage, reader: Server) -> None:
    page = open_page(reader.url)
    read(page, LETTER)
    page.locator(".text span", has_text="skewer").hover()
    assert page.locator("polygon.over").get_attribute("data-word") == "skewer"


def test_samples_need_no_file(open_page: OpenPage, reader: Server) -> None:
    page = open_page(reader.url)
    page.get_by_role("button", name="A letter").click()
    page.get_by_text("this page was drawn by your browser").wait_for()
    page.get_by_role("button", name="A crooked receipt").click()
    page.locator(".text", has_text="Yakitori Kushi").wait_for()
    assert page.locator(".page").count() == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda file, data: file.save(data, "TIFF", save_all=True, append_images=[written("second", 40)]),
        lambda file, data: data.write(pdf([said("first", 100, 600, 60)], PAPER)),
    ],
    ids=["TIFF", "PDF"],
)
def test_pages_that_browsers_cannot_show_are_written_out(
    open_page: OpenPage, url: str, make: Callable[[Image.Image, io.BytesIO], None]
) -> None:
    data = io.BytesIO()
    make(written("first", 40), data)
    page = open_page(url)
    read(page, document("pages", "application/octet-stream", data.getvalue()))
    assert page.locator("figure img").count() == 0
    assert page.locator("figure text").first.text_content() == "first"
    frame, word = page.locator("polygon").first.bounding_box(), page.locator("figure text").first.bounding_box()
    assert word["x"] == pytest.approx(frame["x"], abs=12)
    assert word["width"] == pytest.approx(frame["width"], rel=0.2)


def test_a_document_that_cannot_be_read_says_why(open_page: OpenPage, url: str) -> None:
    page = open_page(url)
    page.locator("#file").set_input_files(document("page.png", "image/png", encoded(written("cut"))[:200]))
    assert "the image is truncated or malformed" in page.get_by_role("alert").inner_text()
    page.get_by_text("Not read.").wait_for()
    # and the next one is read
    read(page, LETTER)
    assert page.get_by_role("alert").count() == 0


def test_dropped_and_pasted_files_are_read(open_page: OpenPage, reader: Server) -> None:
    page = open_page(reader.url)
    page.locator("#drop").wait_for()
    transfer = files(page, "dropped.png", encoded(written("dropped", 40)))
    page.locator("#drop").dispatch_event("drop", {"dataTransfer": transfer})
    page.locator(".text", has_text="dropped").wait_for()
    pasted = files(page, "pasted.png", encoded(written("pasted", 40)))
    page.evaluate("files => dispatchEvent(new ClipboardEvent('paste', { clipboardData: files }))", pasted)
    page.locator(".text", has_text="pasted").wait_for()
    page.get_by_role("heading", name="pasted.png").wait_for()


def test_the_time_of_each_step_is_shown(open_page: OpenPage, url: str) -> None:
    page = open_page(url)
    read(page, LETTER)
    legend = page.get_by_role("list", name="Steps").inner_text()
    for step in ("opened", "lines found", "lines read"):
        assert step in legend
    page.get_by_text("What the models did meanwhile").click()
    rows = page.locator("#document tbody tr").all_inner_texts()
    (detector,) = [row.split("\t") for row in rows if row.startswith("detector")]
    assert detector[1:3] == ["1", "1"]


def test_the_page_of_bentoml_is_beside_it(bento: Bento) -> None:
    answer = fetch(("127.0.0.1", bento.port), "GET", "/docs")
    assert (answer.status, b"swagger-ui" in answer.body) == (200, True)
    assert b"/playground/app.js" in fetch(("127.0.0.1", bento.port), "GET", "/").body
