"""KServe's client over gRPC, with typed and with raw contents"""

import asyncio
import sys

import numpy as np
from grpc.aio import AioRpcError
from kserve import InferInput, InferRequest
from kserve.inference_client import InferenceGRPCClient

FIRST = np.arange(16, dtype=np.int32)[None]
SECOND = np.ones((1, 16), np.int32)


def request(model: str, *, raw: bool) -> InferRequest:
    inputs = [InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for one, values in zip(inputs, (FIRST, SECOND), strict=True):
        one.set_data_from_numpy(values, binary_data=raw)
    return InferRequest(model, inputs, request_id="mine")


async def main(grpc: str) -> None:
    client = InferenceGRPCClient(grpc, retries=0)
    assert await client.is_server_live() is True
    assert await client.is_server_ready() is True
    assert await client.is_model_ready("add_sub") is True
    for raw in (False, True):
        answer = await client.infer(request("add_sub", raw=raw))
        found = {one.name: one.as_numpy() for one in answer.outputs}
        assert (found["OUTPUT0"].reshape(1, 16) == FIRST + SECOND).all()
        assert (found["OUTPUT1"].reshape(1, 16) == FIRST - SECOND).all()
        assert answer.id == "mine"
    missing = ""
    try:
        await client.infer(request("missing", raw=True))
    except AioRpcError as error:
        missing = str(error.details())
    assert "unknown model: 'missing'" in missing
    await client.close()


asyncio.run(main(sys.argv[2]))
