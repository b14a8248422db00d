"""As many answers of 1 KB as the request asks for"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            (count,) = pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()
            for index in range(count):
                output = pb_utils.Tensor("PAGE", np.full(256, index, np.float32))
                sender.send(pb_utils.InferenceResponse([output]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
