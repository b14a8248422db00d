import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        came = {tensor.name(): tensor.as_numpy().tolist() for tensor in request.inputs()}
        came["by name"] = pb_utils.get_input_tensor_by_name(request, "SECOND") is not None
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("CAME", np.array([json.dumps(came, sort_keys=True)], np.object_))]
        )
