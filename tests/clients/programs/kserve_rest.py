"""KServe's client over HTTP, with tensors as JSON and in binary"""

import asyncio
import sys

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

FIRST = np.arange(16, dtype=np.int32)[None]
SECOND = np.ones((1, 16), np.int32)


async def main(http: str) -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    url = f"http://{http}"
    assert await client.is_server_live(url) is True
    assert await client.is_server_ready(url) is True
    assert await client.is_model_ready(url, "add_sub") is True
    for binary in (False, True):
        inputs = [InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
        for one, values in zip(inputs, (FIRST, SECOND), strict=True):
            one.set_data_from_numpy(values, binary_data=binary)
        wanted = [RequestedOutput(name, {"binary_data": binary}) for name in ("OUTPUT0", "OUTPUT1")]
        request = InferRequest("add_sub", inputs, request_id="mine", request_outputs=wanted)
        answer = await client.infer(url, request, model_name="add_sub")
        found = {one.name: one.as_numpy() for one in answer.outputs}
        assert (found["OUTPUT0"] == FIRST + SECOND).all()
        assert (found["OUTPUT1"] == FIRST - SECOND).all()
        assert answer.id == "mine"
    await client.close()


asyncio.run(main(sys.argv[1]))
