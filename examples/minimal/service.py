"""Degrees of Celsius in, degrees of Fahrenheit out: as little as a service can be"""

import bentoml
import numpy as np
from kushi.bento import depends, engine, service


@service
class Degrees:
    models = depends(engine("model_repository"))

    @bentoml.api
    async def fahrenheit(self, celsius: list[float]) -> list[float]:
        outputs = await self.models.degrees.async_run(np.array(celsius, np.float32)[:, None])
        return outputs["fahrenheit"][:, 0].tolist()
