import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        lengths = np.array([len(text) for text in texts.reshape(-1)], np.int32).reshape(texts.shape)
        if lengths.max() > 20:
            error = pb_utils.TritonError("the text is too long", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        outputs = [pb_utils.Tensor("LENGTH", lengths)]
        if lengths.max() != 13:
            outputs.append(pb_utils.Tensor("HALF", lengths / np.float32(2)))
        return pb_utils.InferenceResponse(outputs)
