"""A service without models of its own: they run in an engine or a Triton elsewhere"""

import os

import bentoml
import numpy as np
from kushi.bento import depends, service

ELSEWHERE = os.environ.get("MODELS_URL", "http://localhost:8000")


@service
class Degrees:
    models = depends(url=ELSEWHERE)

    @bentoml.api
    async def fahrenheit(self, celsius: list[float]) -> list[float]:
        outputs = await self.models.degrees.async_run(np.array(celsius, np.float32)[:, None])
        return outputs["fahrenheit"][:, 0].tolist()
