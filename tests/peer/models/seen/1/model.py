"""What a model sees of a request, and of itself, as JSON"""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        seen = {
            "request_id": request.request_id(),
            "correlation_id": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": json.loads(request.parameters() or "{}"),
            "wanted": sorted(request.requested_output_names()),
            "inputs": [[tensor.name(), tensor.shape(), tensor.is_cpu()] for tensor in request.inputs()],
            "is_cancelled": request.is_cancelled(),
        }
        outputs = {"REQUEST": seen, "ARGS": self.args}
        rows = len(request.inputs()[0].as_numpy())
        tensors = [
            pb_utils.Tensor(name, np.array([[json.dumps(value).encode()]] * rows, np.object_))
            for name, value in outputs.items()
            if name in request.requested_output_names()
        ]
        return pb_utils.InferenceResponse(tensors)
