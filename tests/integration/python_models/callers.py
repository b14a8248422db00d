"""Python models that ask others, and one that is asked and waits"""

from tests.integration.python_models import models

ASKING_AT_START = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        BEFORE
        two, one = (np.full((1, 1), value, np.float32) for value in (2, 1))
        memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0)
        asked = pb_utils.InferenceRequest(
            model_name="NAME",
            requested_output_names=["OUTPUT0"],
            inputs=[pb_utils.Tensor("INPUT0", two), pb_utils.Tensor("INPUT1", one)],
            preferred_memory=memory,
        ).exec()
        if asked.has_error():
            raise pb_utils.TritonModelException(asked.error().message())
        assert asked.output_tensors()[0].is_cpu()
        self.sum = asked.output_tensors()[0].as_numpy()

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", self.sum)]) for _ in requests]
"""

WAITING = """
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            print("has begun", flush=True)
            while not request.is_cancelled():
                threading.Event().wait(0.01)
            print("is cancelled", flush=True)
            SENDS
        return RETURNED
"""

ASKING_ONE_THAT_WAITS = """
import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    HOW execute(self, requests):
        for request in requests:
            asked = pb_utils.InferenceRequest(
                model_name="NAME", requested_output_names=["SAID"], inputs=request.inputs(), timeout=TIMEOUT
            )
            answers = ASK
            print(*[answer.error().code() for answer in answers], flush=True)
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""


def waiting(*, decoupled: bool) -> tuple[str, str]:
    """One that waits until nobody waits for it, with its configuration"""
    if not decoupled:
        returned = "[pb_utils.InferenceResponse([]) for _ in requests]"
        return WAITING.replace("SENDS", "pass").replace("RETURNED", returned), models.COUNTED_CONFIG
    sends = "request.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"
    config = models.COUNTED_CONFIG + "model_transaction_policy { decoupled: true }"
    return WAITING.replace("SENDS", sends).replace("RETURNED", "None"), config


ANSWERING_FIRST = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            outputs = [pb_utils.Tensor("OUTPUT0", request.inputs()[0].as_numpy())]
            final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            request.get_response_sender().send(pb_utils.InferenceResponse(outputs), flags=final)
            asked = pb_utils.InferenceRequest(
                model_name="add_sub", requested_output_names=["OUTPUT0"], inputs=request.inputs()
            ).exec()
            print("asked:", asked.error() or asked.output_tensors()[0].as_numpy().item(), flush=True)
        return [None for _ in requests]
"""


KEEPING = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        self.kept += [request.get_response_sender() for request in requests]
        print("has begun", flush=True)
        return RETURNED
"""


def keeping(*, decoupled: bool) -> tuple[str, str]:
    """One that never ends a request, with its configuration"""
    if not decoupled:
        return KEEPING.replace("RETURNED", "[None for _ in requests]"), models.COUNTED_CONFIG
    return KEEPING.replace("RETURNED", "None"), models.COUNTED_CONFIG + "model_transaction_policy { decoupled: true }"
