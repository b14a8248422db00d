"""The API with Kushi: BentoML reads and answers, the engine batches and runs."""

from __future__ import annotations

from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import DType, Shape

from benchmarks.options import BUILD
from runners.bento import depends, engine, service

Models = engine(BUILD / "repository", name="Models")


@service(name="Predictor")
class Predictor:
    models = depends(Models)

    @bentoml.api
    async def predict(self, x: Annotated[np.ndarray, Shape((128,)), DType("float32")]) -> np.ndarray:
        result = await self.models.mlp.async_run(x[np.newaxis])
        return result["OUTPUT"][0]
