"""The API without a model: what BentoML itself takes."""

from __future__ import annotations

from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import DType, Shape


@bentoml.service(name="Predictor")
class Predictor:
    @bentoml.api
    async def predict(self, x: Annotated[np.ndarray, Shape((128,)), DType("float32")]) -> np.ndarray:
        return x[:10]
