"""Documents in, words out, the models of model_repository/ between: `bentoml serve`. Importing it starts nothing"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated

import bentoml
from bentoml.validators import ContentType
from prometheus_client import Counter

from preprocessing import markdown, words
from preprocessing.answers import Document
from preprocessing.reading import Ocr, Reader
from runners.bento import UploadReader, depends, engine, events, image, service
from runners.uploads import UnreadableUpload

Models = engine("model_repository", name="Models")
File = Annotated[Path, ContentType("*/*")]
columns = Counter("reader_columns_total", "Columns of pixels that the recogniser has looked at", ["of"])


@service(name="Kushi", image=image(lock="requirements/bento-{runtime}.txt"), traffic={"timeout": 120})
class Kushi:
    """Reads scans, photographs and PDFs: each word, how sure that is, and where it stands."""

    models = depends(Models)
    uploads = UploadReader(client_errors=UnreadableUpload, memory_bytes=512 * 2**20, patience=60)

    def __init__(self) -> None:
        known = words.characters(Path("model_repository/recogniser/characters.txt").read_text("utf-8"))
        self.reader = Reader(self.models.async_infer, self.uploads.read, known, count)

    @bentoml.api
    async def read(self, document: File, ocr: Ocr = "auto") -> Document:
        """
        All words of a picture, a TIFF or a PDF: `curl -F document=@page.jpg URL/read`

        The text that a page of a PDF holds is taken as it is. `ocr=always` has every page looked at.
        """
        return await self.reader.document(document, ocr)

    @bentoml.api(route="/read/stream")
    async def stream(self, document: File, ocr: Ocr = "auto") -> AsyncGenerator[str, None]:
        """The same page by page, each as soon as it is read, as server-sent events"""
        async for event in events(self.reader.pages(document, ocr)):
            yield event

    @bentoml.api(route="/read/text")
    async def text(self, document: File, ocr: Ocr = "auto") -> str:
        """The text alone"""
        return (await self.reader.document(document, ocr)).text

    @bentoml.api(route="/read/markdown")
    async def markdown(self, document: File, ocr: Ocr = "auto") -> Annotated[str, ContentType("text/markdown")]:
        """The text with its headings, lists and paragraphs"""
        return await asyncio.to_thread(markdown.of, await self.reader.document(document, ocr))

    @bentoml.api(route="/read/pdf")
    async def pdf(self, document: File, ocr: Ocr = "auto") -> Annotated[bytes, ContentType("application/pdf")]:
        """A PDF that looks the same and can be searched: `curl -F document=@page.jpg URL/read/pdf -o page.pdf`"""
        return await self.reader.searchable(document, ocr)


def count(own: int, filling: int) -> None:
    columns.labels("line").inc(own)
    columns.labels("filling").inc(filling)
