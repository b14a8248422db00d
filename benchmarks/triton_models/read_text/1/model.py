"""How often each character of ASCII occurs in a text"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            counts = [np.bincount(np.frombuffer(text, np.uint8) & 127, minlength=128) for text in texts[:, 0]]
            output = pb_utils.Tensor("COUNTS", np.array(counts, np.float32))
            responses.append(pb_utils.InferenceResponse([output]))
        return responses
