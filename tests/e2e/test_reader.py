"""The service of this repository: pages are read, and what is none is refused."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.e2e.bento import Bento
from tests.e2e.pictures import encoded, written
from tests.serving import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

README = (ROOT / "README.md").read_text(encoding="utf-8")
LETTER = ROOT / "docs/images/letter.png"
TEXT = "the skewer holds many pieces\nover one fire"


@pytest.fixture(scope="module")
def bento() -> Iterator[Bento]:
    with Bento(ROOT).until_ready() as bento:
        yield bento


def read(client: httpx.Client, page: Image.Image | bytes) -> httpx.Response:
    data = page if isinstance(page, bytes) else encoded(page)
    # a page takes seconds where others have the processors
    return client.post("/read", files={"document": ("page.png", data, "image/png")}, timeout=60)


def test_the_letter_of_the_page_is_read_as_the_page_says(client: httpx.Client) -> None:
    answer = read(client, LETTER.read_bytes()).raise_for_status().json()
    assert f"```text\n{answer['text']}\n```" in README
    with Image.open(LETTER) as letter:
        assert (answer["width"], answer["height"]) == letter.size


def test_words_stand_where_they_are_said_to_stand(client: httpx.Client) -> None:
    page = written(TEXT, 40)
    lines = read(client, page).raise_for_status().json()["lines"]
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


@pytest.mark.parametrize("size", [(6000, 4000), (4898, 4898)])
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
    assert answer == {"width": 300, "height": 200, "text": "", "lines": []}


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 1), (4000, 40)])
def test_pages_of_odd_sizes_are_read(client: httpx.Client, size: tuple[int, int]) -> None:
    answer = read(client, Image.new("L", size, 255)).raise_for_status().json()
    assert (answer["width"], answer["height"], answer["lines"]) == (*size, [])


def test_what_is_no_image_is_refused_with_the_reason(client: httpx.Client) -> None:
    answer = read(client, b"%PDF-1.7")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("expected an image (PNG, JPEG")


def test_the_example_of_the_document_can_be_sent(client: httpx.Client) -> None:
    document = client.get("/docs.json").raise_for_status().json()
    operation = document["paths"]["/read"]["post"]
    (command,) = re.findall(r"`(curl [^`]*)`", operation["description"])
    field = shlex.split(command)[2].partition("=")[0]
    assert field in operation["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
    assert json.dumps(document["components"]["schemas"]["Word"]["properties"]).count('"description"') >= 1
