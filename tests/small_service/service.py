"""A service of two small models that were trained here, for tests of what is around models"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import ContentType

from runners.bento import UploadReader, depends, engine, service, websocket
from runners.uploads import UnreadableImage, audio, images
from tests.small_service import digits
from tests.small_service.answers import Activity, Digit, Found
from tests.small_service.sounds import CHUNK

Models = engine("model_repository", name="Models")
Upload = Annotated[Path, ContentType("image/*")]


@service(name="Kushi", traffic={"timeout": 60})
class Kushi:
    """
    Reads handwritten digits and listens for tones.

    `/events` is a WebSocket: it takes PCM of 16 bits, 16 kHz, mono, in binary messages of any length, answers every
    16 ms of it with `{"seconds": 0.016, "probability": 0.002}`, and ends with an empty message.
    """

    models = depends(Models)
    uploads = UploadReader(client_errors=UnreadableImage)

    @bentoml.api
    async def digit(self, image: Upload) -> Digit:
        """The digit on a picture of one, of any size, format and colour: `curl -F image=@digit.png URL/digit`"""
        pixels = await self.uploads.read(image, images.decode, digits.one)
        return Digit.of((await self.models.digits.async_run(pixels))["logits"])

    @bentoml.api
    async def digits(self, image: Upload) -> list[Found]:
        """All digits on a page, line by line: `curl -F image=@page.jpg URL/digits`"""
        boxes, pixels = await self.uploads.read(image, images.decode, digits.many)
        # one by one, so that they share batches with those of others
        results = await asyncio.gather(*(self.models.digits.async_run(one[np.newaxis]) for one in pixels))
        return [Found.at(box, result["logits"]) for box, result in zip(boxes, results, strict=True)]

    @websocket("/events")
    async def events(self, messages: AsyncIterator[bytes]) -> AsyncIterator[Activity]:
        chunker, state = audio.Chunker(CHUNK), np.zeros((1, 64), np.float32)
        async for data in messages:
            for seconds, chunk in chunker.feed(data):
                result = await self.models.toneact.async_run(chunk=chunk, state=state)
                state = result["state_out"]
                yield Activity(seconds=seconds, probability=result["probability"].item())
