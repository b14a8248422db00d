"""As many responses as it is asked for, from a thread of its own; a negative number is an error behind one response"""

import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])
            threading.Thread(target=repeat, args=(request.get_response_sender(), count)).start()


def repeat(sender, count):
    if count < 0:
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("I", np.array([count], np.int32))]))
        error = pb_utils.TritonError("N must not be negative", pb_utils.TritonError.INVALID_ARG)
        sender.send(pb_utils.InferenceResponse(error=error))
    for number in range(count):
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("I", np.array([number], np.int32))]))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
