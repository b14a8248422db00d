"""Python models of the tests, each as a user would write it"""

from pathlib import Path

ADD_SUB = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        output = pb_utils.get_output_config_by_name(config, "OUTPUT0")
        self.dtype = pb_utils.triton_string_to_numpy(output["data_type"])

    def execute(self, requests):
        responses = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            b = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
            outputs = [
                pb_utils.Tensor("OUTPUT0", (a + b).astype(self.dtype)),
                pb_utils.Tensor("OUTPUT1", (a - b).astype(self.dtype)),
            ]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses

    def finalize(self):
        print("finalized")
"""

ADD_SUB_CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "INPUT1" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ -1 ] } ]
dynamic_batching { }
"""

ASKING = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        asked = pb_utils.InferenceRequest(
            model_name="NAME", requested_output_names=["OUTPUT1"], inputs=request.inputs()
        ).exec()
        if asked.has_error():
            return pb_utils.InferenceResponse(error=asked.error())
        difference = pb_utils.get_output_tensor_by_name(asked, "OUTPUT1").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT1", difference * 10)])
"""

COUNTING = """
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
            threading.Thread(target=self.count, args=(request.get_response_sender(), count)).start()

    def count(self, sender, count):
        for number in range(count):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("NUMBER", np.array([number], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

COUNTING_CONFIG = """
backend: "python"
input [ { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "NUMBER" data_type: TYPE_INT32 dims: [ 1 ] } ]
model_transaction_policy { decoupled: true }
"""

FAULTY = """
import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        what = pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0].decode()
        if what == "segfault":
            print("the last words", flush=True)
            ctypes.string_at(0)
        elif what == "exit":
            os._exit(3)
        elif what == "sys.exit":
            sys.exit(4)
        elif what == "raise":
            raise ValueError("no such thing")
        elif what == "hang":
            print("hangs")
            threading.Event().wait()
        elif what == "error":
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError("not for you", pb_utils.TritonError.NOT_FOUND)
            )
        elif what == "garbage":
            os.write(int(sys.argv[1]), b"x" * 64)
        elif what == "closed":
            os.closerange(3, 4096)
        elif what == "child":
            what = str(subprocess.Popen(["sleep", "600"]).pid)
        elif what == "print storm":
            print(*(f"print {number}" for number in range(5000)), sep="\\n")
        elif what == "log storm":
            for number in range(5000):
                pb_utils.Logger.log_info(f"log {number}")
        elif what == "broken strings":
            tensor = pb_utils.Tensor("SAID", np.array([b"whole"], np.object_))
            tensor._wire = tensor._wire[:-1]
            return pb_utils.InferenceResponse([tensor])
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([what.encode()], np.object_))])
"""

FAULTY_CONFIG = """
backend: "python"
input [ { name: "WHAT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "SAID" data_type: TYPE_STRING dims: [ 1 ] } ]
parameters { key: "kushi.execute_timeout" value { string_value: "1" } }
"""


def write(repository: Path, name: str, source: str, config: str) -> None:
    version = repository / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(source)
    (repository / name / "config.pbtxt").write_text(config)


FAILING_STREAM = """
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
            threading.Thread(target=self.count, args=(request.get_response_sender(), count)).start()

    def count(self, sender, count):
        if count:
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("NUMBER", np.array([count], np.int32))]))
        else:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("nothing to count")))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

GIVING_UP = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        asked = pb_utils.InferenceRequest(
            model_name="counting", requested_output_names=["NUMBER"], inputs=request.inputs()
        ).exec(decoupled=True)
        first = next(asked).output_tensors()[0].as_numpy()
        del asked
        return pb_utils.InferenceResponse([pb_utils.Tensor("NUMBER", first + 100)])
"""

COUNTED = """
import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.asked = pb_utils.MetricFamily(
            name="asked_total", description='Questions "of all"', kind=pb_utils.MetricFamily.COUNTER
        )
        self.level = pb_utils.MetricFamily("level", "How high", pb_utils.MetricFamily.GAUGE)
        self.size = pb_utils.MetricFamily("size", "Bytes", pb_utils.MetricFamily.HISTOGRAM)
        self.asked_here = self.asked.Metric(labels={"model": "counted", "what": 'a "b"'})
        self.level_here = self.level.Metric(labels={})
        self.size_here = self.size.Metric(labels={"unit": "byte"}, buckets=[1, 2.5, float("inf")])

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        what = pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0].decode()
        try:
            said = str(eval(what, {**globals(), "self": self, "request": request}))
        except pb_utils.TritonModelException as error:
            said = str(error)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([said.encode()], np.object_))])
"""

COUNTED_CONFIG = """
backend: "python"
input [ { name: "WHAT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "SAID" data_type: TYPE_STRING dims: [ 1 ] } ]
"""

TELLING = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        what = pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0]
        parameters = json.loads(what) if what else None
        said = pb_utils.Tensor("SAID", np.array([what], np.object_))
        return pb_utils.InferenceResponse([said], parameters=parameters)
"""

REPEATING = """
import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        asked = pb_utils.InferenceRequest(
            model_name="telling", requested_output_names=["SAID"], inputs=request.inputs()
        ).exec()
        parameters = json.loads(asked.parameters()) if asked.parameters() else {}
        return pb_utils.InferenceResponse(asked.output_tensors(), parameters={**parameters, "repeated": True})
"""

HEARING = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        what = pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0].decode()
        if what:
            asked = pb_utils.InferenceRequest(
                model_name=what,
                requested_output_names=["SAID"],
                inputs=[pb_utils.Tensor("WHAT", np.array([b""], np.object_))],
                correlation_id=request.correlation_id(),
                flags=request.flags(),
                timeout=request.timeout(),
            ).exec()
            return pb_utils.InferenceResponse(asked.output_tensors(), error=asked.error())
        heard = {
            "correlation_id": request.correlation_id(),
            "start": bool(request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START),
            "end": bool(request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END),
            "timeout": request.timeout(),
            "priority": request.priority(),
            "trace": request.trace().get_context(),
            "parameters": json.loads(request.parameters()),
        }
        said = np.array([json.dumps(heard).encode()], np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", said)])
"""

SHAPED = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        shape = pb_utils.Tensor("SHAPE", np.array(x.shape, np.int32))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x if x.sum() >= 0 else x.reshape(-1)), shape])
"""

SHAPED_CONFIG = """
backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 4, -1 ] reshape { shape: [ 2, 2, -1 ] } } ]
output [
  { name: "Y" data_type: TYPE_FP32 dims: [ 4, -1 ] reshape { shape: [ 2, 2, -1 ] } },
  { name: "SHAPE" data_type: TYPE_INT32 dims: [ -1 ] }
]
"""

NUMBERED = """
import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        family = pb_utils.MetricFamily("executed", "Requests", pb_utils.MetricFamily.COUNTER)
        self.executed = family.Metric(labels={})

    def execute(self, requests):
        self.executed.increment(len(requests))
        process = np.array([str(os.getpid()).encode()], np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SAID", process)]) for _ in requests]

    def finalize(self):
        print("finalized", flush=True)
"""
