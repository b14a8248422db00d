"""The API with Kushi's service and without its model: what the call itself takes is what is missing here."""

from __future__ import annotations

from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import DType, Shape

from runners.bento import service


@service(name="Predictor")
class Predictor:
    @bentoml.api
    async def predict(self, x: Annotated[np.ndarray, Shape((128,)), DType("float32")]) -> np.ndarray:
        return x[:10]
