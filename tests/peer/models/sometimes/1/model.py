"""Leaves an output out where X is not positive"""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        names = ["ALWAYS", "SOMETIMES"] if x[0] > 0 else ["ALWAYS"]
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, x) for name in names])
