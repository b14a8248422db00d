"""From the vectors of all tokens to that of the text"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            hidden = pb_utils.get_input_tensor_by_name(request, "last_hidden_state").as_numpy()
            mask = pb_utils.get_input_tensor_by_name(request, "attention_mask").as_numpy()[..., None]
            vectors = (hidden * mask).sum(axis=1) / mask.sum(axis=1)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("embedding", vectors.astype(np.float32))]))
        return answers
