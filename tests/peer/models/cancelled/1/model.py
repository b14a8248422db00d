"""Streams until it is cancelled, or says how many requests have been"""

import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.cancelled = 0

    def execute(self, requests):
        for request in requests:
            (streams,) = pb_utils.get_input_tensor_by_name(request, "STREAMS").as_numpy()
            sender = request.get_response_sender()
            if streams:
                threading.Thread(target=self.stream, args=(sender,)).start()
            else:
                sender.send(said(self.cancelled), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def stream(self, sender):
        sender.send(said(0))
        pause = threading.Event()
        while not sender.is_cancelled():
            pause.wait(0.01)
        self.cancelled += 1
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def said(number):
    return pb_utils.InferenceResponse([pb_utils.Tensor("CANCELLED", np.array([number], np.int32))])
