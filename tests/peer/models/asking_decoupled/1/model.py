"""A decoupled model that hands on what another decoupled one streams"""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            asked = pb_utils.InferenceRequest(
                model_name="repeat", requested_output_names=["I"], inputs=request.inputs()
            )
            for response in asked.exec(decoupled=True):
                if response.has_error():
                    sender.send(pb_utils.InferenceResponse(error=response.error()))
                elif response.output_tensors():
                    number = response.output_tensors()[0].as_numpy()
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("I", number + 100)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
