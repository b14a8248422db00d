"""Degrees of Celsius in, degrees of Fahrenheit out: on a runner of Triton"""

import bentoml
import numpy as np

triton_runner = bentoml.triton.Runner("triton_runner", "./model_repository")
svc = bentoml.Service("triton", runners=[triton_runner])


@svc.api(input=bentoml.io.NumpyNdarray(), output=bentoml.io.NumpyNdarray())
async def fahrenheit(celsius: np.ndarray) -> np.ndarray:
    result = await triton_runner.degrees.async_run(celsius.astype(np.float32)[:, None])
    return result.as_numpy("fahrenheit")
