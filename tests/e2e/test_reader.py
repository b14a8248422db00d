"""The service of this repository: pages are read, and what is none is refused."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image, ImageDraw
from tritonclient import grpc, http
from tritonclient.utils import InferenceServerException

from runners.uploads.pdf_writer import Sheet
from runners.uploads.pdf_writer import written as written_pdf
from tests.e2e.bento import Bento
from tests.e2e.pictures import encoded, written
from tests.pdfs import pdf, said
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import httpx

README = (ROOT / "README.md").read_text(encoding="utf-8")
LETTER = ROOT / "docs/images/letter.png"
TEXT = "the skewer holds many pieces\nover one fire"


@pytest.fixture(scope="module")
def bento() -> Iterator[Bento]:
    with Bento(ROOT).until_ready() as bento:
        yield bento


def read(client: httpx.Client, page: Image.Image | bytes, form: str = "", **fields: str) -> httpx.Response:
    data = page if isinstance(page, bytes) else encoded(page)
    # a page takes seconds where others have the processors
    return client.post(f"/read{form}", files={"document": ("page", data)}, data=fields, timeout=60)


def read_page(client: httpx.Client, page: Image.Image | bytes) -> dict[str, Any]:
    """Of a document of one"""
    answer: dict[str, Any]
    (answer,) = read(client, page).raise_for_status().json()["pages"]
    return answer


def tiff(*pages: Image.Image) -> bytes:
    file = io.BytesIO()
    pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:], compression="tiff_lzw")
    return file.getvalue()


def heard(answer: httpx.Response) -> list[dict[str, Any]]:
    """What the events of a stream say"""
    return [json.loads(event.removeprefix("data: ")) for event in answer.text.split("\n\n") if event]


def test_the_letter_of_the_page_is_read_as_the_page_says(client: httpx.Client) -> None:
    answer = read_page(client, LETTER.read_bytes())
    assert f"```text\n{answer['text']}\n```" in README
    with Image.open(LETTER) as letter:
        assert (answer["width"], answer["height"]) == letter.size


def test_the_program_of_the_page_prints_what_the_page_says(client: httpx.Client) -> None:
    (program, printed) = re.findall(r"```python\nimport bentoml\n(.*?)```\n+```text\n(.*?)```", README, re.DOTALL)[0]
    here = f"import bentoml\n{program}".replace("http://localhost:3000", str(client.base_url).rstrip("/"))
    command = [sys.executable, "-c", here]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


def test_words_stand_where_they_are_said_to_stand(client: httpx.Client) -> None:
    page = written(TEXT, 40)
    lines = read_page(client, page)["lines"]
    assert [[word["text"] for word in line["words"]] for line in lines] == [line.split() for line in TEXT.split("\n")]
    drawn = ImageDraw.Draw(page)
    for line, text in zip(lines, TEXT.split("\n"), strict=True):
        begin = 40.0
        for word in line["words"]:
            (left, _), (right, _) = np.min(word["corners"], 0), np.max(word["corners"], 0)
            end = begin + drawn.textlength(word["text"], font_size=40)
            # half a letter
            assert (left, right) == pytest.approx((begin, end), abs=16), (word["text"], text)
            assert 0.5 < word["confidence"] <= 1
            begin = end + drawn.textlength(" ", font_size=40)


TURNS = [Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_270]


@pytest.mark.parametrize("turn", TURNS)
def test_pages_that_lie_upside_down_or_on_a_side_are_read_in_their_order(
    client: httpx.Client, turn: Image.Transpose
) -> None:
    assert read(client, written(TEXT, 40).transpose(turn)).raise_for_status().json()["text"] == TEXT


@pytest.mark.parametrize("size", [(6000, 4000), (4898, 4898), (7000, 5600)])
def test_pages_of_a_good_camera_are_read(client: httpx.Client, size: tuple[int, int]) -> None:
    page = Image.new("RGB", size, "white")
    page.paste(written("seven birds", 240), (400, 900))
    data = encoded(page, "JPEG")
    assert read(client, data).raise_for_status().json()["text"] == "seven birds"


def test_a_page_that_lies_askew_is_read_in_its_order(client: httpx.Client) -> None:
    askew = written(TEXT, 40).rotate(4, expand=True, fillcolor="white", resample=Image.Resampling.BICUBIC)
    assert read(client, askew).raise_for_status().json()["text"] == TEXT


def test_an_empty_page_has_no_words(client: httpx.Client) -> None:
    answer = read(client, Image.new("L", (300, 200), 255)).raise_for_status().json()
    assert all(seconds >= 0 for seconds in answer["pages"][0].pop("seconds").values())
    page = {"number": 1, "width": 300, "height": 200, "source": "pixels", "text": "", "lines": []}
    assert answer == {"text": "", "pages": [page]}


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 1), (4000, 40)])
def test_pages_of_odd_sizes_are_read(client: httpx.Client, size: tuple[int, int]) -> None:
    answer = read_page(client, Image.new("L", size, 255))
    assert (answer["width"], answer["height"], answer["lines"]) == (*size, [])


# --- documents of many pages ---

PAPER = (595.0, 842.0)


def test_pages_of_a_tiff_are_read_in_their_order(client: httpx.Client) -> None:
    pages = [written(f"page number {word}", 40) for word in ("one", "two", "three")]
    answer = read(client, tiff(*pages)).raise_for_status().json()
    assert [page["text"] for page in answer["pages"]] == ["page number one", "page number two", "page number three"]
    assert [page["number"] for page in answer["pages"]] == [1, 2, 3]
    assert answer["text"] == "page number one\n\npage number two\n\npage number three"


def test_a_pdf_says_its_text_itself_unless_it_has_to_be_looked_at(client: httpx.Client) -> None:
    # what it says is not what it shows
    data = pdf([said("shown", 100, 600, 60), said("hidden", 100, 400, 60).replace("0 g", "3 Tr")], PAPER)
    (page,) = read(client, data).raise_for_status().json()["pages"]
    assert (page["source"], page["text"]) == ("text", "shown\nhidden")
    assert {word["confidence"] for line in page["lines"] for word in line["words"]} == {1}
    (looked,) = read(client, data, ocr="always").raise_for_status().json()["pages"]
    assert (looked["source"], looked["text"]) == ("pixels", "shown")
    assert [page["width"], page["height"]] == [looked["width"], looked["height"]]
    shown, (seen,) = page["lines"][0], looked["lines"]
    assert np.array(seen["corners"]) == pytest.approx(np.array(shown["corners"]), abs=60)


def test_a_long_document_is_heard_page_by_page(client: httpx.Client) -> None:
    pages = [written(f"page number {word}", 40) for word in ("one", "two", "three", "four")]
    answer = read(client, tiff(*pages), "/stream").raise_for_status()
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [(page["number"], page["text"]) for page in heard(answer)] == [
        (number, f"page number {word}") for number, word in enumerate(("one", "two", "three", "four"), 1)
    ]


def test_a_page_that_cannot_be_read_is_the_last_event(client: httpx.Client) -> None:
    data = tiff(written(TEXT, 40), Image.new("1", (20_000, 20_000)))
    first, failed, _ = read(client, data, "/stream").text.split("\n\n")
    assert json.loads(first.removeprefix("data: "))["text"] == TEXT
    assert failed.startswith('event: error\ndata: {"error": "expected at most 40 megapixels, got a TIFF of 20000')
    assert read(client, data).status_code == 400


@pytest.mark.parametrize("make", [tiff, lambda *pages: pages_of_pdf(pages)])
def test_what_was_read_is_found_in_a_pdf(client: httpx.Client, make: Callable[..., bytes]) -> None:
    pages = [written(TEXT, 40), written("another page", 40)]
    answer = read(client, make(*pages), "/pdf").raise_for_status()
    assert answer.headers["content-type"] == "application/pdf"
    (first, second) = read(client, answer.content).raise_for_status().json()["pages"]
    assert [first["text"], second["text"]] == [TEXT, "another page"]


def test_a_document_is_answered_as_text_and_as_markdown(client: httpx.Client) -> None:
    lines = [said("Title of it", 72, 760, 30), said("Some text that", 72, 700, 12), said("goes on.", 72, 686, 12)]
    lines.append(said("More of it.", 72, 640, 12))
    data = pdf(lines, PAPER)
    text = read(client, data, "/text").raise_for_status()
    assert text.text == "Title of it\nSome text that\ngoes on.\nMore of it."
    assert text.headers["content-type"].startswith("text/plain")
    marked = read(client, data, "/markdown").raise_for_status()
    assert marked.text == "# Title of it\n\nSome text that goes on.\n\nMore of it.\n"
    assert marked.headers["content-type"].startswith("text/markdown")


def pages_of_pdf(pages: Sequence[Image.Image]) -> bytes:
    """Scanned: pictures and nothing else"""
    file = io.BytesIO()
    pages[0].save(file, "PDF", save_all=True, append_images=pages[1:], resolution=150)
    return file.getvalue()


def test_what_is_filled_up_is_counted(client: httpx.Client) -> None:
    read(client, written(TEXT, 40)).raise_for_status()
    metrics = client.get("/metrics").raise_for_status().text
    counted = {
        of: float(count) for of, count in re.findall(r'^reader_columns_total{of="(\w+)"} (\S+)$', metrics, re.MULTILINE)
    }
    assert counted.keys() == {"line", "filling"}
    assert 0 < counted["filling"] < counted["line"] / 4


# --- what is refused ---

REFUSED = {
    "no document": (b"PK\3\4 a letter", "expected a PDF or an image (PNG, JPEG"),
    "a PDF cut short": (pdf([], PAPER)[:80], "the PDF is truncated or malformed"),
    "a locked PDF": (pdf([], PAPER, locked=True), "the PDF is locked with a password"),
    "ten thousand pages": (
        written_pdf([Sheet((0, 0, 10, 10), [])] * 10_000),
        "expected a document of at most 500 pages, got 10000",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("form", ["", "/stream", "/text", "/markdown", "/pdf"])
def test_what_cannot_be_read_is_refused_with_the_reason(client: httpx.Client, name: str, form: str) -> None:
    data, reason = REFUSED[name]
    answer = read(client, data, form)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(reason)


def test_an_unknown_way_of_reading_is_refused(client: httpx.Client) -> None:
    assert read(client, pdf([], PAPER), ocr="never").status_code == 400


# --- the same as a model ---


def asked(client: Any, kind: Any, data: bytes, *outputs: str, ocr: str = "") -> Any:  # noqa: ANN401 - as there are two
    """What the model answers to a client of the protocol, for HTTP or gRPC"""
    inputs = []
    for name, value in {"document": data, "ocr": ocr.encode()}.items():
        if value:
            tensor = kind.InferInput(name, [1], "BYTES")
            tensor.set_data_from_numpy(np.array([value], np.object_))
            inputs.append(tensor)
    return client.infer("reader", inputs, outputs=[kind.InferRequestedOutput(name) for name in outputs])


@pytest.fixture(params=[http, grpc], ids=["http", "grpc"])
def protocol(request: pytest.FixtureRequest, bento: Bento) -> Iterator[Callable[..., Any]]:
    with request.param.InferenceServerClient(f"127.0.0.1:{bento.port}") as client:
        yield partial(asked, client, request.param)


def test_the_model_says_what_the_service_says(client: httpx.Client, protocol: Callable[..., Any]) -> None:
    data = tiff(written(TEXT, 40), written("seven birds", 40))
    said = read(client, data).raise_for_status().json()
    answer = protocol(data)
    pages = [json.loads(page) for page in answer.as_numpy("pages")]
    for page in (*pages, *said["pages"]):
        assert page.pop("seconds").keys() == {"open", "find", "read"}
    assert pages == said["pages"]
    assert answer.as_numpy("text").tolist() == [said["text"].encode()]
    assert answer.as_numpy("markdown").tolist() == [read(client, data, "/markdown").raise_for_status().content]


def test_the_model_answers_what_it_is_asked_for(protocol: Callable[..., Any]) -> None:
    data = pdf([said("shown", 100, 600, 60), said("hidden", 100, 400, 60).replace("0 g", "3 Tr")], PAPER)
    assert [protocol(data, "text", ocr=ocr).as_numpy("text")[0] for ocr in ("auto", "always")] == [
        b"shown\nhidden",
        b"shown",
    ]
    assert protocol(data, "text").as_numpy("pages") is None


@pytest.mark.parametrize("name", REFUSED)
def test_the_model_refuses_with_the_reason(protocol: Callable[..., Any], name: str) -> None:
    data, reason = REFUSED[name]
    with pytest.raises(InferenceServerException) as raised:
        protocol(data)
    assert raised.value.message().startswith(reason)
    assert raised.value.status() in {"400", "StatusCode.INVALID_ARGUMENT"}


def test_the_model_knows_two_ways_of_reading(protocol: Callable[..., Any]) -> None:
    with pytest.raises(InferenceServerException) as raised:
        protocol(LETTER.read_bytes(), ocr="never")
    assert raised.value.message() == 'expected ocr to be "auto" or "always", got \'never\''


def test_the_example_of_the_document_can_be_sent(client: httpx.Client) -> None:
    document = client.get("/docs.json").raise_for_status().json()
    operation = document["paths"]["/read"]["post"]
    (command,) = re.findall(r"`(curl [^`]*)`", operation["description"])
    field = shlex.split(command)[2].partition("=")[0]
    assert field in operation["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
    assert json.dumps(document["components"]["schemas"]["Word"]["properties"]).count('"description"') >= 1
