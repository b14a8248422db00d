"""Degrees of Celsius in, degrees of Fahrenheit out: on a runner of Triton"""

import bentoml
import numpy as np
from kushi import TritonRunner

triton_runner = TritonRunner("triton_runner", "./model_repository")
svc = bentoml.legacy.Service("triton")


@svc.api(input=bentoml.io.NumpyNdarray(), output=bentoml.io.NumpyNdarray())
async def fahrenheit(celsius: np.ndarray) -> np.ndarray:
    result = await triton_runner.degrees.async_run(celsius.astype(np.float32)[:, None])
    return result.as_numpy("fahrenheit")
