import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        first = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        second = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
        total = pb_utils.Tensor("OUTPUT0", (first + second).astype(np.int32))
        return pb_utils.InferenceResponse([total, pb_utils.Tensor("OUTPUT1", first - second)])
