"""The name of the best score"""

import numpy as np
import triton_python_backend_utils as pb_utils

LABELS = np.array([f"label {number}".encode() for number in range(10)], object)


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            scores = pb_utils.get_input_tensor_by_name(request, "SCORES").as_numpy()
            labels = LABELS[scores.argmax(axis=1)][:, np.newaxis]
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("LABEL", labels)]))
        return responses
