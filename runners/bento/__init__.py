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

from .dependency import depends
from .engine_service import engine
from .image import image
from .service import service
from .told import told

__all__ = ["depends", "engine", "image", "service", "told"]
