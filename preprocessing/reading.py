"""
A document read page by page: which model is asked what, and when.

It is told how a model is run and how a file is read, so that a service and a model of the repository can read alike.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Protocol

from PIL import Image

from runners.errors import InvalidInput, Overloaded
from runners.fan_out import Room, some_at_a_time
from runners.uploads import documents

from . import boxes, crops, pages, words
from .answers import Document, Line, Page, Seconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

__all__ = ["MOST_WORDS", "Ocr", "Reader"]

Ocr = Literal["auto", "always"]
"""Whether the text that a page of a PDF holds is taken as it is, or every page looked at"""

MOST_PAGES, PAGES_AHEAD, LINES_AHEAD = 8, 2, 16
"""At a time: of all documents, since a page takes 100 MB; of one document; of one page. Others share their batches"""
LAST_TURN = 3
"""First pages go before later ones, so that a letter does not wait for books; among later ones all wait alike"""
FEW_WORDS, MOST_WORDS, MOST_HELD = 2_000, 100_000, 300_000
"""
Of a page or document that makes nobody wait; of a document that is answered as a whole, as a book is; and of all at a
time, beside those of few words. A word takes a kilobyte until it is sent.
"""

MOST_BOUND, MOST_PICTURE_BYTES = 2, 256 * 2**20
"""At a time, documents whose pictures become a PDF; and of the pictures of one"""


class Run(Protocol):
    def __call__(self, model: str, inputs: Mapping[str, Floats], /) -> Awaitable[Mapping[str, npt.NDArray[Any]]]:
        """The outputs of a model, by their names"""


class ReadFile(Protocol):
    def __call__(self, file: Path, /, *functions: Callable[[Any], Any], turn: int) -> Awaitable[Any]:
        """What functions of modules, one after the other, make of the file's bytes"""


class Reader:
    """
    known: the characters that the recogniser names
    count: is told of each line how many columns of pixels it has, and how many it was filled up with
    """

    def __init__(self, run: Run, read: ReadFile, known: Sequence[str], count: Callable[[int, int], None]) -> None:
        self._run = run
        self._read = read
        self._known = known
        self._count = count
        self._room = Room(MOST_PAGES)
        self._writing = Room(1)
        self._binding = Room(MOST_BOUND)
        self._held = 0

    async def document(self, file: Path, ocr: Ocr) -> Document:
        read, held = list[Page](), 0
        try:
            async with aclosing(self.pages(file, ocr)) as answers:
                async for page in answers:
                    read.append(page)
                    more = sum(len(line.words) for line in page.lines)
                    held, self._held = held + more, self._held + more
                    if held > MOST_WORDS:
                        raise InvalidInput(f"expected a document of at most {MOST_WORDS} words: read it page by page")
                    if held > FEW_WORDS and self._held > MOST_HELD:
                        raise Overloaded("other long documents are read: try again, or read this one page by page")
            return Document.of(read)
        finally:
            self._held -= held

    async def searchable(self, file: Path, ocr: Ocr) -> bytes:
        """A PDF that looks like the document, with the words that were read of it"""
        layers = [page.layer() for page in (await self.document(file, ocr)).pages]
        pictures, left = list[documents.Picture](), MOST_PICTURE_BYTES
        async with self._binding.taken(_turn(len(layers))):
            for number in range(len(layers)):
                picture = await self._read(file, partial(documents.picture, page=number), turn=_turn(number))
                if picture is None:
                    laid: bytes = await self._read(file, partial(documents.searchable, layers=layers), turn=LAST_TURN)
                    return laid
                pictures.append(picture)
                left -= len(picture.data)
                if left < 0:
                    raise InvalidInput(
                        f"expected pages that take at most {MOST_PICTURE_BYTES} bytes as a PDF, got more"
                    )
            return await asyncio.to_thread(documents.bound, pictures, layers)

    async def pages(self, file: Path, ocr: Ocr) -> AsyncGenerator[Page, None]:
        """Each as soon as it and those before it are read"""
        numbers = range(await self._read(file, documents.count_pages, turn=0))
        calls = (self._page(file, number, ocr) for number in numbers)
        async with aclosing(some_at_a_time(calls, PAGES_AHEAD)) as answers:
            async for page in answers:
                yield page

    async def _page(self, file: Path, number: int, ocr: Ocr) -> Page:
        turn, began = _turn(number), perf_counter()
        if ocr == "auto" and (text := await self._read(file, partial(documents.text, page=number), turn=turn)):
            seconds = Seconds.of(open=perf_counter() - began)
            if sum(len(line.words) for line in text.lines) <= FEW_WORDS:
                return Page.said(number, text, seconds)
            # one at a time: Python runs one thread
            async with self._writing.taken(turn):
                return await asyncio.to_thread(Page.said, number, text, seconds)
        async with self._room.taken(turn):
            seen = partial(documents.pixels, page=number)
            # not counted: that it has waited for its turn
            began = perf_counter()
            page, pixels = await self._read(file, seen, pages.prepared, turn=turn)
            opened = perf_counter()
            marks = (await self._run("detector", {"x": pixels}))["fetch_name_0"][0, 0]
            corners = await asyncio.to_thread(boxes.lines, marks, *page.shape[1::-1])
            found = perf_counter()
            picture = await asyncio.to_thread(Image.fromarray, page)
            calls = some_at_a_time((self._line(picture, one) for one in corners), LINES_AHEAD)
            lines = [line async for line in calls if line]
            seconds = Seconds.of(open=opened - began, find=found - opened, read=perf_counter() - found)
            return Page.read(number, page, lines, seconds)

    async def _line(self, picture: Image.Image, corners: crops.Corners) -> Line | None:
        crop = await asyncio.to_thread(crops.cut, picture, corners)
        (shares,) = (await self._run("orientation", {"x": crops.for_orientation(crop)})).values()
        crop = crops.upright(crop, shares)
        pixels, filled = await asyncio.to_thread(crops.for_recogniser, crop)
        own = round(filled * pixels.shape[-1])
        self._count(own, pixels.shape[-1] - own)
        read = await self._run("lines", {"line": pixels})
        spelled = words.spelled(read["ids"][0], read["shares"][0], self._known, filled=filled)
        return Line.read(crop, spelled) if spelled else None


def _turn(number: int) -> int:
    return min(number, LAST_TURN)
