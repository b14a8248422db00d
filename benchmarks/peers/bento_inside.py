"""The API with ONNX Runtime called in the handler, and all else as BentoML has it."""

from __future__ import annotations

from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import DType, Shape

from benchmarks.peers.session import open_session


@bentoml.service(name="Predictor")
class Predictor:
    def __init__(self) -> None:
        self._session = open_session()

    @bentoml.api
    def predict(self, x: Annotated[np.ndarray, Shape((128,)), DType("float32")]) -> np.ndarray:
        return self._session.run(None, {"INPUT": x[np.newaxis]})[0][0]
