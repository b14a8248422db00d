"""
Kushi inside a BentoML service.

    import bentoml
    from kushi.bento import depends, engine, service

    Models = engine("model_repository")

    @service
    class Reader:
        models = depends(Models)

        @bentoml.api
        async def digit(self, image: bytes) -> int:
            result = await self.models.digits.async_run(prepare(image))
            return int(result["logits"].argmax())
"""

from ..fan_out import some_at_a_time
from ..upload_reader import UploadReader
from . import internals  # noqa: F401 - first of all: it says what is wrong where BentoML is another one
from .dependency import depends
from .engine_service import engine
from .error_text import error_text
from .events import events
from .image import image
from .service import service
from .websockets import websocket

__all__ = [
    "UploadReader",
    "depends",
    "engine",
    "error_text",
    "events",
    "image",
    "service",
    "some_at_a_time",
    "websocket",
]
