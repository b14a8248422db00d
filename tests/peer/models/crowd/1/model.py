"""Of a batch of several requests: how many there were; a negative X is an error of its own, a large one of all"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        if any(array.max() > 100 for array in arrays):
            raise ValueError("X is too large")
        return [self.answer(array, len(requests)) for array in arrays]

    def answer(self, array, count):
        if array.min() < 0:
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError("X is negative", pb_utils.TritonError.NOT_FOUND)
            )
        counts = np.full(array.shape, count, np.int32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", array), pb_utils.Tensor("REQUESTS", counts)])
