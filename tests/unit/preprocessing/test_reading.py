"""A document read page by page: the order of its pages, what a whole one may hold, what an early end leaves."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from preprocessing import reading
from preprocessing.reading import Reader
from runners import InvalidInput, Overloaded
from runners.uploads import documents
from runners.uploads.pdf_writer import Sheet, written
from tests.pdfs import pdf, placed, said

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Files:
    """Read here, with what was asked for"""

    def __init__(self) -> None:
        self.turns: list[int] = []
        self.held = asyncio.Event()
        self.held.set()

    async def read(self, file: Path, *functions: Callable[[Any], Any], turn: int) -> Any:  # noqa: ANN401 - as of the real one
        self.turns.append(turn)
        await self.held.wait()
        value: Any = file.read_bytes()
        for function in functions:
            value = function(value)
        return value


async def no_model(model: str, inputs: Mapping[str, Any], /) -> Mapping[str, Any]:
    raise AssertionError(f"{model} was asked, {len(inputs)}")


def reader(files: Files) -> Reader:
    return Reader(no_model, files.read, [], lambda own, filling: None)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.pdf"
    path.write_bytes(written([Sheet((0, 0, 300, 300), [placed(f"page{number}")]) for number in range(6)]))
    return path


def test_pages_come_in_their_order_and_first_ones_have_an_earlier_turn(book: Path) -> None:
    async def run() -> None:
        files = Files()
        document = await reader(files).document(book, "auto")
        assert [(page.number, page.text) for page in document.pages] == [(n + 1, f"page{n}") for n in range(6)]
        assert document.text == "\n\n".join(f"page{n}" for n in range(6))
        assert files.turns == [0, 0, 1, 2, 3, 3, 3]

    asyncio.run(run())


def test_a_whole_document_has_a_bound_of_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.pdf"
    path.write_bytes(pdf([said("one two three", 72, 700, 12), said("four", 72, 600, 12)], (595, 842)))

    async def run() -> None:
        monkeypatch.setattr(reading, "MOST_WORDS", 4)
        assert len((await reader(Files()).document(path, "auto")).pages) == 1
        monkeypatch.setattr(reading, "MOST_WORDS", 3)
        with pytest.raises(InvalidInput, match=r"^expected a document of at most 3 words: read it page by page$"):
            await reader(Files()).document(path, "auto")
        assert [page.number async for page in reader(Files()).pages(path, "auto")] == [1]

    asyncio.run(run())


def test_long_documents_at_a_time_have_a_bound_and_short_ones_go_on(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        files = Files()
        reads = reader(files)
        monkeypatch.setattr(reading, "MOST_HELD", 7)
        monkeypatch.setattr(reading, "FEW_WORDS", 0)
        assert len((await reads.document(book, "auto")).pages) == 6
        with pytest.raises(Overloaded, match=r"^other long documents are read: try again"):
            await asyncio.gather(reads.document(book, "auto"), reads.document(book, "auto"))
        monkeypatch.setattr(reading, "FEW_WORDS", 10)
        documents = await asyncio.gather(*(reads.document(book, "auto") for _ in range(5)))
        assert [len(document.pages) for document in documents] == [6] * 5

    asyncio.run(run())


async def no_text(model: str, inputs: Mapping[str, Any], /) -> Mapping[str, Any]:
    """What the detector answers for a page without any"""
    assert model == "detector"
    return {"fetch_name_0": np.zeros_like(inputs["x"][:, :1])}


def test_pictures_that_become_a_pdf_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pages.tiff"
    pages = [Image.radial_gradient("L") for _ in range(3)]
    pages[0].save(path, save_all=True, append_images=pages[1:])

    async def searchable() -> bytes:
        return await Reader(no_text, Files().read, [], lambda own, filling: None).searchable(path, "auto")

    assert documents.count_pages(asyncio.run(searchable())) == 3
    taken: list[int] = []
    monkeypatch.setattr(documents, "picture", partial(_counted, taken, documents.picture))
    monkeypatch.setattr(reading, "MOST_PICTURE_BYTES", 10)
    with pytest.raises(InvalidInput, match=r"^expected pages that take at most 10 bytes as a PDF, got more$"):
        asyncio.run(searchable())
    # and the others are not asked for
    assert taken == [0]


def _counted(taken: list[int], picture: Callable[..., Any], data: bytes, page: int) -> Any:  # noqa: ANN401 - a picture
    taken.append(page)
    return picture(data, page)


def test_who_leaves_after_a_page_leaves_nothing_behind(book: Path) -> None:
    async def run() -> None:
        files = Files()
        async with aclosing(reader(files).pages(book, "auto")) as pages:
            assert (await anext(pages)).number == 1
            files.held.clear()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
