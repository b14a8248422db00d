"""When does somebody speak? Sound in, as a recording or over a WebSocket while it is spoken; moments out"""

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Annotated

import bentoml
from bentoml.validators import ContentType
from kushi.bento import UploadReader, depends, engine, service, websocket
from kushi.uploads import UnreadableAudio, audio
from listening import CHUNK, Event, Listener, chunks

Models = engine("model_repository", name="Models")
Recording = Annotated[Path, ContentType("*/*")]


@service
class Listen:
    """
    Hears when somebody speaks.

    `/events` is a WebSocket: it takes PCM of 16 bits, 16 kHz, mono, in binary messages of any length, answers with
    `{"speech": "begins", "seconds": 0.416}` and the like as soon as it knows, and ends with an empty message.
    """

    models = depends(Models)
    uploads = UploadReader(client_errors=UnreadableAudio)

    @bentoml.api
    async def speech(self, recording: Recording) -> list[Event]:
        """When somebody speaks in a WAV file"""
        samples = await self.uploads.read(recording, audio.decode)
        listener = Listener(self.models.voice.async_run)
        heard = [await listener.hear(chunk) for chunk in chunks(samples)]
        return [event for event in [*heard, listener.end()] if event]

    @websocket("/events")
    async def events(self, messages: AsyncIterator[bytes]) -> AsyncGenerator[Event, None]:
        listener, chunker = Listener(self.models.voice.async_run), audio.Chunker(CHUNK)
        async for message in messages:
            for chunk in chunker.feed(message):
                if event := await listener.hear(chunk):
                    yield event
        if event := listener.end():
            yield event
