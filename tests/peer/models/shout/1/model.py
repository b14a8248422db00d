import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.loud(request)]) for request in requests]

    def loud(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        if (texts == b"").any():
            raise ValueError("there is nothing to shout")
        if (texts == b"busy").any():
            raise pb_utils.TritonModelException("busy")
        loud = [text.decode().upper() for text in texts.reshape(-1)]
        return pb_utils.Tensor("LOUD", np.array(loud, np.object_).reshape(texts.shape))
