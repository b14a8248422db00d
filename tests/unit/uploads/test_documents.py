"""Pages of documents: what they say themselves, how they look, and the words that are laid over them."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin
from PIL.PngImagePlugin import PngInfo

from runners.uploads import UnreadableDocument, UnreadableImage, UnreadableUpload, documents, pdf_text
from runners.uploads.pdf_writer import Sheet, written
from tests.pdfs import pdf, placed, said

if TYPE_CHECKING:
    from collections.abc import Sequence

A4 = (595.0, 842.0)


def words(data: bytes, page: int = 0) -> list[tuple[str, list[list[float]]]]:
    text = documents.text(data, page)
    assert text is not None
    return [(word.text, np.round(word.corners).tolist()) for line in text.lines for word in line.words]


def lines(data: bytes, page: int = 0) -> list[str]:
    text = documents.text(data, page)
    assert text is not None
    return [line.text for line in text.lines]


def grey(level: int, size: tuple[int, int] = (60, 40)) -> Image.Image:
    return Image.new("L", size, level)


def tiff(pages: Sequence[Image.Image], **options: object) -> bytes:
    file = io.BytesIO()
    pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:], **options)
    return file.getvalue()


# --- what a page says ---


def test_the_text_of_a_page_is_read_with_its_places() -> None:
    data = pdf([said("Two words", 72, 700, 20)], A4)
    text = documents.text(data, dots_per_inch=72)
    assert text is not None
    assert (text.width, text.height) == (595, 842)
    (line,) = text.lines
    assert (line.text, [word.text for word in line.words]) == ("Two words", ["Two", "words"])
    two, other = (word.corners for word in line.words)
    # it begins at 72, and its feet stand 142 below the upper edge
    assert two[0][0] == pytest.approx(72, abs=2)
    assert two[2][1] == pytest.approx(142, abs=6)
    assert two[0][1] == pytest.approx(122, abs=6)
    assert two[1][0] < other[0][0] < other[1][0] < 72 + 20 * 9
    assert (line.corners[0] == np.minimum(two[0], other[0])).all()
    assert (line.corners[2] == np.maximum(two[2], other[2])).all()


def test_lines_keep_the_order_of_the_file() -> None:
    assert lines(pdf([said("last", 72, 100, 12), said("first", 72, 700, 12)], A4)) == ["last", "first"]


def test_a_word_that_is_cut_at_the_end_of_a_line_is_of_both_lines() -> None:
    # PDFium writes such hyphens as a character of its own, and no end of the line
    data = pdf([said("of infor-", 72, 700, 12), said("mation here", 72, 686, 12)], A4)
    assert lines(data) == ["of infor-", "mation here"]


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_pages_that_are_shown_turned_say_where_one_sees_their_words(turn: int) -> None:
    (upright,) = words(pdf([said("corner", 0, 822, 20)], A4))
    (turned,) = words(pdf([said("corner", 0, 822, 20)], A4, more=f"/Rotate {turn}"))
    page = documents.pixels(pdf([], A4, more=f"/Rotate {turn}"))
    height, width = page.shape[:2]
    # the corner of the page in which the word begins, clockwise from the upper left one
    corners = np.array([(0, 0), (width, 0), (width, height), (0, height)])
    begin = corners[turn // 90]
    assert np.linalg.norm(np.array(upright[1][0])) < 20
    assert np.linalg.norm(np.array(turned[1][0]) - begin) < 20
    sides = [np.linalg.norm(np.subtract(word[1][1], word[1][0])) for word in (upright, turned)]
    assert sides[0] == pytest.approx(sides[1], abs=3)


def test_words_stand_where_they_are_drawn_on_a_page_that_was_cropped() -> None:
    data = pdf([said("here", 300, 400, 30)], A4, more="/CropBox[250 350 500 500]")
    ((_, corners),) = words(data)
    dark = np.argwhere(documents.pixels(data).min(2) < 128)
    (top, left), (bottom, right) = dark.min(0), dark.max(0)
    (from_left, from_top), (to_left, to_top) = np.min(corners, 0), np.max(corners, 0)
    assert from_left - 6 <= left <= right <= to_left + 6
    assert from_top - 6 <= top <= bottom <= to_top + 6
    # what is drawn takes most of it
    assert right - left > 0.8 * (to_left - from_left)


def test_characters_of_all_planes_are_read() -> None:
    data = written([Sheet((0, 0, 300, 300), [placed("Ωλ火𝄞")])])
    assert [text for text, _ in words(data)] == ["Ωλ火𝄞"]


def test_a_page_without_text_has_to_be_looked_at() -> None:
    assert documents.text(pdf([], A4)) is None
    assert documents.text(tiff([grey(0)])) is None


def test_a_stamp_on_a_scan_is_no_text_of_it() -> None:
    scan = pdf([said("Received 2026", 72, 20, 9)], A4, picture=(0, 0, 595, 842))
    assert documents.text(scan) is None
    small = pdf([said("Received 2026", 72, 20, 9)], A4, picture=(0, 600, 200, 842))
    assert lines(small) == ["Received 2026"]
    many = [said("a line of six words here", 72, 800 - 20 * row, 12) for row in range(30)]
    assert lines(pdf(many, A4, picture=(0, 0, 595, 842)))[0] == "a line of six words here"


def test_neither_is_the_head_of_a_fax() -> None:
    head = said("FROM: 0123 456789 TO: 9876 543210 " * 2 + "2026-11-28 PAGE 1 OF 7", 20, 830, 8)
    assert documents.text(pdf([head], A4, picture=(0, 0, 595, 842))) is None


def test_a_scan_in_strips_is_looked_at() -> None:
    strips = [f"q 595 0 0 84 0 {84 * row} cm /P Do Q" for row in range(10)]
    assert documents.text(pdf([*strips, said("Page 1 of 7", 270, 20, 9)], A4)) is None


def test_what_is_written_beside_the_page_is_no_text_of_it() -> None:
    beside = [said("seen", 72, 700, 12), said("hidden below", 72, -2000, 12), said("hidden left", -500, 500, 12)]
    assert lines(pdf(beside, A4)) == ["seen"]
    assert lines(
        pdf([said("seen", 260, 700, 12), *beside[1:], said("cut", 72, 600, 12)], A4, more="/CropBox[250 0 595 842]")
    ) == ["seen"]


def test_what_was_filled_in_and_noted_is_text() -> None:
    look = "BT 0 g /F 14 Tf 2 4 Td (FILLED IN) Tj ET"
    shown = "/Type/Annot/F 4/AP<</N 7 0 R>>/Rect[100 600 300 620]"
    head = f"/Type/XObject/Subtype/Form/BBox[0 0 200 20]/Resources<</Font<</F 5 0 R>>>>/Length {len(look)}"
    form = [f"<<{head}>>stream\n{look}\nendstream"]
    for kind in ("/Subtype/Widget/FT/Tx/T(name)/V(FILLED IN)", "/Subtype/FreeText/Contents(FILLED IN)/DA(/F 14 Tf)"):
        data = pdf([said("Name of applicant", 100, 630, 12)], A4, more=f"/Annots[<<{shown}{kind}>>]", objects=form)
        assert lines(data) == ["Name of applicant", "FILLED IN"], kind


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_an_image_that_speaks_of_pdf_is_an_image(kind: str) -> None:
    file, text = io.BytesIO(), "made of %PDF-1.4"
    comment = PngInfo()
    comment.add_text("Comment", text)
    options: dict[str, dict[str, Any]] = {
        "JPEG": {"comment": text},
        "PNG": {"pnginfo": comment},
        "TIFF": {"description": text},
    }
    grey(10).convert("RGB").save(file, kind, **options[kind])
    assert b"%PDF-" in file.getvalue()
    assert documents.count_pages(file.getvalue()) == 1
    assert documents.pixels(file.getvalue()).shape == (40, 60, 3)


def test_a_font_that_does_not_say_what_its_letters_mean_is_looked_at() -> None:
    hidden = written([Sheet((0, 0, 300, 300), [placed("\ue001\ue002\ue003"), placed("ab")])])
    assert documents.text(hidden) is None


# --- how a page looks ---


def test_pages_are_drawn_at_the_density_that_is_asked_for() -> None:
    assert documents.pixels(pdf([], (72, 144)), dots_per_inch=100).shape == (200, 100, 3)
    assert documents.pixels(pdf([], (72, 144))).shape == (400, 200, 3)


def test_red_is_red() -> None:
    page = documents.pixels(pdf(["1 0 0 rg 0 0 72 72 re f"], (72, 72)))
    assert (page[100, 100] == (255, 0, 0)).all()


def test_each_page_of_a_tiff_is_one() -> None:
    data = tiff([grey(level) for level in (10, 20, 30)], compression="tiff_lzw")
    assert documents.count_pages(data) == 3
    assert [int(documents.pixels(data, page)[0, 0, 0]) for page in range(3)] == [10, 20, 30]


def test_a_smaller_copy_in_a_tiff_is_no_page() -> None:
    smaller = TiffImagePlugin.ImageFileDirectory_v2()
    smaller[254] = 1
    first, copy, last = io.BytesIO(), grey(20), grey(30)
    with TiffImagePlugin.AppendingTiffWriter(first, new=True) as writer:
        for page, information in ((grey(10), None), (copy, smaller), (last, None)):
            page.save(writer, "TIFF", **({"tiffinfo": information} if information else {}))
            writer.newFrame()
    data = first.getvalue()
    assert documents.count_pages(data) == 2
    assert [int(documents.pixels(data, page)[0, 0, 0]) for page in range(2)] == [10, 30]


def test_pages_of_a_tiff_stand_upright_each_by_itself() -> None:
    turned = TiffImagePlugin.ImageFileDirectory_v2()
    turned[274] = 6
    file = io.BytesIO()
    with TiffImagePlugin.AppendingTiffWriter(file, new=True) as writer:
        for information in ({}, {"tiffinfo": turned}):
            grey(10).save(writer, "TIFF", **information)
            writer.newFrame()
    data = file.getvalue()
    assert [documents.pixels(data, page).shape for page in range(2)] == [(40, 60, 3), (60, 40, 3)]


# --- words over a page ---

PLACES = [
    ("above", [(50.0, 60.0), (150.0, 60.0), (150.0, 90.0), (50.0, 90.0)]),
    ("turned", [(300.0, 100.0), (300.0, 300.0), (260.0, 300.0), (260.0, 100.0)]),
    ("火を", [(90.0, 240.0), (200.0, 240.0), (200.0, 290.0), (90.0, 290.0)]),
]


@pytest.mark.parametrize(
    "more", ["", "/CropBox[20 30 290 480]", "/Rotate 90", "/Rotate 180/CropBox[9 0 290 480]", "/Rotate 270"]
)
def test_words_are_laid_where_they_were_seen(more: str) -> None:
    data = pdf(["0 0 1 rg 100 100 50 50 re f"], (300, 500), more=more)
    seen = documents.pixels(data)
    height, width = seen.shape[:2]
    found = documents.searchable(data, [(width, height, PLACES)])
    assert words(found) == [(text, [list(corner) for corner in corners]) for text, corners in PLACES]
    # and nothing else is seen than before
    assert (documents.pixels(found) == seen).all()


def test_pictures_become_a_pdf_that_looks_like_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_text, "THIN", 0)
    pages = [Image.radial_gradient("L").resize((900, 700)), grey(200, (500, 400))]
    data = tiff(pages)
    # of a page that was made half as large to be read
    half = [(text, [(x / 2, y / 2) for x, y in corners]) for text, corners in PLACES]
    pictures = [picture for number in range(2) if (picture := documents.picture(data, number))]
    found = documents.bound(pictures, [(450, 350, half), (500, 400, [])])
    assert documents.count_pages(found) == 2
    assert words(found) == [(text, [list(corner) for corner in corners]) for text, corners in PLACES]
    for number, page in enumerate(pages):
        shown = documents.pixels(found, number)
        assert shown.shape[:2] == page.size[::-1]
        assert np.abs(shown[:, :, 0].astype(int) - np.asarray(page)).mean() < 3


def test_words_that_a_page_says_itself_are_not_laid_again() -> None:
    data = pdf([said("Hello world", 72, 700, 40)], A4)
    text = documents.text(data)
    assert text is not None
    hello, world = ((word.text, word.corners.tolist()) for line in text.lines for word in line.words)
    again = documents.searchable(data, [(text.width, text.height, [hello, world, PLACES[0]])])
    assert [word for word, _ in words(again)] == ["Hello", "world", "above"]
    assert documents.searchable(data, [(text.width, text.height, [hello, world])]) == data


def test_black_and_white_stays_that() -> None:
    page = Image.new("1", (803, 400), 1)
    page.paste(0, (100, 100, 500, 300))
    data = tiff([page], compression="group4")
    picture = documents.picture(data)
    assert picture is not None
    assert len(picture.data) < 2000
    shown = documents.pixels(documents.bound([picture], [None]))
    assert (shown[:, :, 0] == np.asarray(page.convert("L"))).all()


def test_more_characters_than_a_part_of_the_font_names() -> None:
    letters = [chr(number) for number in range(0x4E00, 0x4E00 + 700)]
    rows = ["".join(letters[at : at + 50]) for at in range(0, 700, 50)]
    places = [
        (row, [(10.0, y), (290.0, y), (290.0, y + 12.0), (10.0, y + 12.0)])
        for y, row in zip(range(0, 280, 20), rows, strict=True)
    ]
    data = pdf([], (300, 300))
    found = documents.searchable(data, [(300, 300, places)])
    assert [text for text, _ in words(found)] == rows


def test_pages_without_a_layer_stay_as_they_are() -> None:
    data = pdf([said("as it was", 72, 700, 12)], A4)
    assert documents.searchable(data, [None]) == data


# --- what is refused ---


def refused(data: bytes, text: str) -> None:
    for function in (documents.count_pages, documents.text, documents.pixels):
        with pytest.raises(UnreadableUpload, match=text):
            function(data)


def test_a_locked_pdf_says_so() -> None:
    refused(pdf([], A4, locked=True), "^the PDF is locked with a password: send it without one$")


@pytest.mark.parametrize("data", [b"%PDF-1.7", b"%PDF-1.7\n" + bytes(2000), pdf([], A4)[:60]])
def test_what_only_begins_like_a_pdf_is_malformed(data: bytes) -> None:
    refused(data, "^the PDF is truncated or malformed$")


def test_too_many_pages_are_refused() -> None:
    sheets = [Sheet((0, 0, 10, 10), [])] * 501
    assert documents.count_pages(written(sheets[1:])) == 500
    with pytest.raises(UnreadableDocument, match=r"^expected a document of at most 500 pages, got 501$"):
        documents.count_pages(written(sheets))
    # the last directory of a TIFF says that the first one follows it
    data = bytearray(tiff([grey(10), grey(20)]))
    (first,) = struct.unpack_from("<I", data, 4)
    at = first
    while True:
        (count,) = struct.unpack_from("<H", data, at)
        (following,) = struct.unpack_from("<I", data, at + 2 + 12 * count)
        if not following:
            break
        at = following
    struct.pack_into("<I", data, at + 2 + 12 * count, first)
    with pytest.raises(UnreadableDocument, match=r"^expected a document of at most 500 pages, got more$"):
        documents.count_pages(bytes(data))


def test_pages_that_are_not_there_are_refused() -> None:
    with pytest.raises(UnreadableUpload):
        documents.pixels(pdf([], A4), 3)
    with pytest.raises(UnreadableImage, match=r"^the image is truncated or malformed$"):
        documents.pixels(tiff([grey(1)]), 3)


@pytest.mark.parametrize("size", [(14_400, 14_400), (1e9, 1e9), (1e9, 1), (0.01, 5000)])
def test_paper_of_any_size_is_drawn_within_bounds(size: tuple[float, float]) -> None:
    page = documents.pixels(pdf([], size))
    assert 0 < max(page.shape[:2]) <= documents.LIMITS.side


def test_a_page_of_too_many_characters_is_not_read_out() -> None:
    many = pdf([said("x" * 1000, 0, 1 + row, 1) for row in range(101)], A4)
    with pytest.raises(UnreadableDocument, match=r"^expected a page of at most 100000 characters, got one of 10"):
        documents.text(many)
    assert documents.pixels(many).shape[2] == 3


def test_a_damaged_pdf_is_read_or_refused() -> None:
    data = pdf([said("Two words", 72, 700, 20)], A4, picture=(0, 0, 100, 100))
    for at in range(0, len(data), 7):
        for damaged in (data[:at], data[:at] + b"\xff" + data[at + 1 :], data[:at] + data[at + 9 :]):
            for function in (documents.text, documents.pixels):
                with suppress(UnreadableUpload):
                    function(damaged)
