"""The API as BentoML's own documentation has it: a second service that batches, called through `bentoml.depends`."""

from __future__ import annotations

from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import DType, Shape

from benchmarks.peers.session import open_session


@bentoml.service(name="Runner")
class Runner:
    def __init__(self) -> None:
        self._session = open_session()

    @bentoml.api(batchable=True, max_batch_size=32)
    def run(self, x: Annotated[np.ndarray, Shape((-1, 128)), DType("float32")]) -> np.ndarray:
        return self._session.run(None, {"INPUT": x})[0]


@bentoml.service(name="Predictor")
class Predictor:
    runner = bentoml.depends(Runner)

    @bentoml.api
    async def predict(self, x: Annotated[np.ndarray, Shape((128,)), DType("float32")]) -> np.ndarray:
        return (await self.runner.to_async.run(x[np.newaxis]))[0]
