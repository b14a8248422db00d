"""Documents in, words out, the models of model_repository/ between: `bentoml serve`. Importing it starts nothing"""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import bentoml
from bentoml.validators import ContentType
from PIL import Image
from prometheus_client import Counter

from preprocessing import boxes, crops, markdown, pages, words
from preprocessing.answers import Document, Line, Page
from runners.bento import UploadReader, depends, engine, events, image, service, some_at_a_time
from runners.uploads import UnreadableUpload, documents

Models = engine("model_repository", name="Models")
File = Annotated[Path, ContentType("*/*")]
Ocr = Literal["auto", "always"]
columns = Counter("reader_columns_total", "Columns of pixels that the recogniser has looked at", ["of"])


@service(name="Kushi", image=image(lock="requirements/bento-{runtime}.txt"), traffic={"timeout": 600})
class Kushi:
    """Reads scans, photographs and PDFs: each word, how sure that is, and where it stands."""

    models = depends(Models)
    uploads = UploadReader(client_errors=UnreadableUpload, memory_bytes=512 * 2**20, patience=60)

    def __init__(self) -> None:
        self.characters = words.characters(Path("model_repository/recogniser/characters.txt").read_text("utf-8"))
        # a page takes 100 MB while it is read
        self.room = asyncio.Semaphore(8)

    @bentoml.api
    async def read(self, document: File, ocr: Ocr = "auto") -> Document:
        """
        All words of a picture, a TIFF or a PDF: `curl -F document=@page.jpg URL/read`

        The text that a page of a PDF holds is taken as it is. `ocr=always` has every page looked at.
        """
        return await self.whole(document, ocr)

    @bentoml.api(route="/read/stream")
    async def stream(self, document: File, ocr: Ocr = "auto") -> AsyncGenerator[str, None]:
        """The same page by page, each as soon as it is read, as server-sent events"""
        async for event in events(self.pages(document, ocr)):
            yield event

    @bentoml.api(route="/read/text")
    async def text(self, document: File, ocr: Ocr = "auto") -> str:
        """The text alone"""
        return (await self.whole(document, ocr)).text

    @bentoml.api(route="/read/markdown")
    async def markdown(self, document: File, ocr: Ocr = "auto") -> Annotated[str, ContentType("text/markdown")]:
        """The text with its headings, lists and paragraphs"""
        return markdown.of(await self.whole(document, ocr))

    @bentoml.api(route="/read/pdf")
    async def pdf(self, document: File, ocr: Ocr = "auto") -> Annotated[bytes, ContentType("application/pdf")]:
        """A PDF that looks the same and can be searched: `curl -F document=@page.jpg URL/read/pdf -o page.pdf`"""
        layers = [page.layer() for page in (await self.whole(document, ocr)).pages]
        return await self.uploads.read(document, partial(documents.searchable, layers=layers))

    async def whole(self, document: Path, ocr: Ocr) -> Document:
        return Document.of([page async for page in self.pages(document, ocr)])

    async def pages(self, document: Path, ocr: Ocr) -> AsyncGenerator[Page, None]:
        numbers = range(await self.uploads.read(document, documents.count_pages))
        async for page in some_at_a_time((self.page(document, number, ocr) for number in numbers), 2):
            yield page

    async def page(self, document: Path, number: int, ocr: Ocr) -> Page:
        async with self.room:
            if ocr == "auto" and (text := await self.uploads.read(document, partial(documents.text, page=number))):
                return Page.said(number, text)
            page, pixels = await self.uploads.read(document, partial(documents.pixels, page=number), pages.prepared)
            marks = (await self.models.detector.async_run(pixels))["fetch_name_0"][0, 0]
            corners = await asyncio.to_thread(boxes.lines, marks, *page.shape[1::-1])
            # lines share batches with those of other pages, and leave them room
            picture = await asyncio.to_thread(Image.fromarray, page)
            lines = some_at_a_time((self.line(picture, one) for one in corners), 16)
            return Page.read(number, page, [line async for line in lines if line])

    async def line(self, picture: Image.Image, corners: crops.Corners) -> Line | None:
        crop = await asyncio.to_thread(crops.cut, picture, corners)
        (shares,) = (await self.models.orientation.async_run(crops.for_orientation(crop))).values()
        crop = crops.upright(crop, shares)
        pixels, filled = await asyncio.to_thread(crops.for_recogniser, crop)
        columns.labels("line").inc(round(filled * pixels.shape[-1]))
        columns.labels("filling").inc(round((1 - filled) * pixels.shape[-1]))
        read = await self.models.lines.async_run(pixels)
        spelled = words.spelled(read["ids"][0], read["shares"][0], self.characters, filled=filled)
        return Line.read(crop, spelled) if spelled else None
