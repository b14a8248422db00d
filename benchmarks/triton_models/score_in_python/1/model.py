"""The same layers as the ONNX model mlp, in NumPy: the real tritonserver of nvidia-pytriton has no ONNX Runtime"""

import numpy as np
import triton_python_backend_utils as pb_utils

WIDTHS = (128, 512, 512, 512, 10)


class TritonPythonModel:
    def initialize(self, args):  # noqa: ARG002
        random = np.random.default_rng(7)
        pairs = zip(WIDTHS, WIDTHS[1:])
        self.layers = [random.standard_normal(pair, np.float32) * np.float32(pair[0] ** -0.5) for pair in pairs]

    def execute(self, requests):
        responses = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
            for layer in self.layers[:-1]:
                values = np.maximum(values @ layer, 0)
            output = pb_utils.Tensor("OUTPUT", values @ self.layers[-1])
            responses.append(pb_utils.InferenceResponse([output]))
        return responses
