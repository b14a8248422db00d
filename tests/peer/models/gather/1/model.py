import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return await asyncio.gather(*(self.answer(request) for request in requests))

    async def answer(self, request):
        await asyncio.sleep(0)
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if x[0] < 0:
            raise ValueError("X must not be negative")
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 2)])
