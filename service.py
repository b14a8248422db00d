"""
The service: uploads in, answers out, with the models of model_repository/ between.

    bentoml serve

Requests are read and answered in Python, by as many workers as there are cores; one engine, in a process of its own,
runs the models for all of them. Importing this module starts nothing.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import bentoml
import numpy as np
from bentoml.validators import ContentType
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from preprocessing import UnreadableAudio, UnreadableImage, audio, digits, images
from runners import InvalidInput, KushiError
from runners.bento import depends, engine, image, service, told

__all__ = ["Kushi", "Models"]

Models = engine("model_repository", name="Models")

Upload = Annotated[Path, ContentType("image/*")]
_Read = TypeVar("_Read")
# of a WebSocket's last frame
_MOST_REASON_BYTES = 123
_SHARES: list[JsonValue] = [0.0, 0.0, 0.0, 0.01, 0.0, 0.0, 0.0, 0.98, 0.0, 0.01]


def _example(**values: JsonValue) -> ConfigDict:
    return ConfigDict(json_schema_extra={"example": values})


class Digit(BaseModel):
    """A handwritten digit"""

    model_config = _example(digit=7, probabilities=_SHARES)

    digit: int = Field(ge=0, le=9)
    probabilities: list[float] = Field(description="Of the digits 0 to 9")


class Found(Digit):
    """A digit on a page"""

    model_config = _example(digit=7, probabilities=_SHARES, left=40, top=32, right=72, bottom=80)

    left: int
    top: int
    right: int
    bottom: int


class Activity(BaseModel):
    """What is heard in one chunk of 16 ms"""

    seconds: float = Field(description="Where the chunk begins")
    probability: float = Field(description="Of a tone")


async def _listen(socket: WebSocket) -> None:
    """Takes PCM of 16 bits, 16 kHz, mono, in messages of any length, and answers every chunk; ends with an empty one"""
    await socket.accept()
    models = bentoml.get_current_service().models
    chunker, state, heard = audio.Chunker(), np.zeros((1, 64), np.float32), 0
    try:
        while data := await _received(socket):
            for chunk in chunker.feed(data):
                result = await models.toneact.async_run(chunk=chunk, state=state)
                state = result["state_out"]
                activity = Activity(seconds=heard * audio.CHUNK / audio.RATE, probability=result["probability"].item())
                heard += 1
                await socket.send_text(activity.model_dump_json())
        await socket.close()
    except WebSocketDisconnect:
        pass
    except KushiError as error:
        await socket.close(1011, told(error).encode()[:_MOST_REASON_BYTES].decode(errors="ignore"))
    except UnreadableAudio as error:
        await socket.close(1003, str(error))


async def _received(socket: WebSocket) -> bytes:
    try:
        return await socket.receive_bytes()
    except KeyError:
        raise UnreadableAudio("expected binary messages, got text") from None


@service(name="Kushi", image=image(lock="requirements/bento-{runtime}.txt"), traffic={"timeout": 60})
@bentoml.asgi_app(Starlette(routes=[WebSocketRoute("/events", _listen)]), path="/", name="events")
class Kushi:
    """
    Reads handwritten digits and listens for tones.

    `/events` is a WebSocket: it takes PCM of 16 bits, 16 kHz, mono, in binary messages of any length, answers every
    16 ms of it with `{"seconds": 0.016, "probability": 0.002}`, and ends with an empty message.
    """

    models = depends(Models)

    @bentoml.api
    async def digit(self, image: Upload) -> Digit:
        """The digit on a picture of one, of any size, format and colour: `curl -F image=@digit.png URL/digit`"""
        pixels = await _read(image, digits.one)
        found, probabilities = digits.answer((await self.models.digits.async_run(pixels))["logits"])
        return Digit(digit=int(found[0]), probabilities=probabilities[0].tolist())

    @bentoml.api
    async def digits(self, image: Upload) -> list[Found]:
        """All digits on a page, line by line: `curl -F image=@page.jpg URL/digits`"""
        boxes, pixels = await _read(image, digits.many)
        if not boxes:
            return []
        found, probabilities = digits.answer(await self._recognize(pixels))
        return [
            Found(digit=int(digit), probabilities=shares.tolist(), **box._asdict())
            for digit, shares, box in zip(found, probabilities, boxes, strict=True)
        ]

    async def _recognize(self, pixels: np.ndarray) -> np.ndarray:
        """Crops of one page are asked for one by one, so that they share batches with those of others"""
        results = await asyncio.gather(*(self.models.digits.async_run(one[np.newaxis]) for one in pixels))
        return np.concatenate([result["logits"] for result in results])


async def _read(upload: Path, prepare: Callable[[np.ndarray], _Read]) -> _Read:
    """Decodes an upload where it keeps no other request waiting"""
    try:
        return await asyncio.to_thread(lambda: prepare(images.decode(upload.read_bytes())))
    except UnreadableImage as error:
        raise InvalidInput(str(error)) from error
