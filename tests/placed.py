"""
A Python model that says where it was placed, and answers with a tensor that lies on its GPU.

It speaks with CUDA's driver alone, as a framework does below, so that it runs with that of a GPU, and with the one of
`tests/stand_in_driver`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput

if TYPE_CHECKING:
    from pathlib import Path

    from tests.serving import Server

__all__ = ["ask", "wait_for_instances", "write"]

MODEL: Final = '''
import ctypes
import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils
from kushi_worker import dlpack  # makes the capsules that a framework would
from kushi_worker.datatypes import BY_NAME


class OnGpu:
    """An array of FP32 on a GPU, which speaks DLPack"""

    def __init__(self, array, device):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.shape, self.device = list(array.shape), device
        handle, self.context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self.check(self.driver.cuInit(0))
        self.check(self.driver.cuDeviceGet(ctypes.byref(handle), device))
        self.check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), handle))
        self.check(self.driver.cuCtxPushCurrent_v2(self.context))
        self.check(self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(1, array.nbytes))))
        self.address = address.value
        source = ctypes.c_void_p(array.ctypes.data)
        self.check(self.driver.cuMemcpyHtoD_v2(ctypes.c_uint64(self.address), source, ctypes.c_size_t(array.nbytes)))
        self.driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def check(self, status):
        if status:
            raise RuntimeError(f"the driver answered {status}")

    def __dlpack_device__(self):
        return (2, self.device)

    def __dlpack__(self, stream=None):
        return dlpack.capsule(self.address, BY_NAME["FP32"], self.shape, (2, self.device), owner=self)

    def __del__(self):
        self.driver.cuCtxPushCurrent_v2(self.context)
        self.driver.cuMemFree_v2(ctypes.c_uint64(self.address))
        self.driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


class TritonPythonModel:
    def initialize(self, args):
        self.args = args
        kind, device = args["model_instance_kind"], args["model_instance_device_id"]
        print(f"{args['model_instance_name']} is placed: {kind} {device}")

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X")
        y = x.as_numpy() * 2
        if self.args["model_instance_kind"] == "GPU":
            y = pb_utils.Tensor.from_dlpack("Y", OnGpu(y, int(self.args["model_instance_device_id"])))
        else:
            y = pb_utils.Tensor("Y", y)
        told = {
            "kind": self.args["model_instance_kind"],
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "input_on_cpu": x.is_cpu(),
            "output_on_cpu": y.is_cpu(),
        }
        told = pb_utils.Tensor("TOLD", np.array([json.dumps(told)], np.object_))
        return pb_utils.InferenceResponse([y, told])
'''

CONFIG: Final = """
backend: "python"
input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "TOLD" data_type: TYPE_STRING dims: [ 1 ] } ]
"""


def write(repository: Path, name: str, text: str = "") -> None:
    version = repository / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL)
    (repository / name / "config.pbtxt").write_text(CONFIG + text)


def ask(server: Server, name: str, elements: int = 3) -> dict[str, Any]:
    """What an instance tells; fails where its output is not what it has computed"""
    x = np.arange(elements, dtype=np.float32)
    tensor = InferInput("X", [elements], "FP32")
    tensor.set_data_from_numpy(x)
    with InferenceServerClient(f"{server.http[0]}:{server.http[1]}") as client:
        answer = client.infer(name, [tensor])
    np.testing.assert_array_equal(answer.as_numpy("Y"), x * 2)
    told: dict[str, Any] = json.loads(answer.as_numpy("TOLD")[0])
    return told


def wait_for_instances(server: Server, placed: dict[str, str]) -> None:
    """Each by its name, with its kind and its device"""
    for name, place in placed.items():
        server.log.wait_for(re.compile(rf"\b{name} is placed: {place}$"), 30)
