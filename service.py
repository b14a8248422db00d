"""Pages in, words out, the models of model_repository/ between: `bentoml serve`. Importing it starts nothing"""

import asyncio
from pathlib import Path
from typing import Annotated

import bentoml
from bentoml.validators import ContentType
from PIL import Image

from preprocessing import boxes, crops, pages, words
from preprocessing.answers import Line, Page
from runners.bento import UploadReader, depends, engine, image, service
from runners.uploads import UnreadableImage, images

Models = engine("model_repository", name="Models")
Document = Annotated[Path, ContentType("image/*")]


@service(name="Kushi", image=image(lock="requirements/bento-{runtime}.txt"), traffic={"timeout": 60})
class Kushi:
    """Reads scans and photographs: each word, how sure that is, and where it stands."""

    models = depends(Models)
    uploads = UploadReader(client_errors=UnreadableImage, memory_bytes=512 * 2**20)

    def __init__(self) -> None:
        self.characters = words.characters(Path("model_repository/recogniser/characters.txt").read_text("utf-8"))

    @bentoml.api
    async def read(self, document: Document) -> Page:
        """All words of a page, from a picture of any format and colour: `curl -F document=@page.jpg URL/read`"""
        page, pixels = await self.uploads.read(document, images.decode_rgb, pages.prepared)
        marks = (await self.models.detector.async_run(pixels))["fetch_name_0"][0, 0]
        corners = await asyncio.to_thread(boxes.lines, marks, *page.shape[1::-1])
        # some at a time: they share batches with those of other pages, and leave them room
        picture, turns = await asyncio.to_thread(Image.fromarray, page), asyncio.Semaphore(16)
        tasks = [asyncio.create_task(self.line(turns, picture, one)) for one in corners]
        try:
            lines = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return Page.of(page, [line for line in lines if line])

    async def line(self, turns: asyncio.Semaphore, picture: Image.Image, corners: crops.Corners) -> Line | None:
        async with turns:
            crop = await asyncio.to_thread(crops.cut, picture, corners)
            (shares,) = (await self.models.orientation.async_run(crops.for_orientation(crop))).values()
            crop = crops.upright(crop, shares)
            pixels, filled = await asyncio.to_thread(crops.for_recogniser, crop)
            read = await self.models.lines.async_run(pixels)
        spelled = words.spelled(read["ids"][0], read["shares"][0], self.characters, filled=filled)
        return Line.of(crop, spelled) if spelled else None
