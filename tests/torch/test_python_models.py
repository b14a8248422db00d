"""A Python model that computes with PyTorch, on the device that it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from runners import Engine

if TYPE_CHECKING:
    from pathlib import Path

MODEL: Final = """
import torch
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.device = "cpu"
        if args["model_instance_kind"] == "GPU":
            self.device = f"cuda:{args['model_instance_device_id']}"

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = torch.from_dlpack(pb_utils.get_input_tensor_by_name(request, "X")).to(self.device)
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("Y", x.float() * 2)])
"""
CONFIG: Final = """
backend: "python"
input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }
"""


@pytest.mark.parametrize("kind", ["KIND_CPU", pytest.param("KIND_GPU", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("elements", [1, 300_000])
def test_a_tensor_of_pytorch_is_an_output(tmp_path: Path, kind: str, elements: int) -> None:
    version = tmp_path / "m/1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL)
    (tmp_path / "m/config.pbtxt").write_text(f"{CONFIG} instance_group {{ kind: {kind} }}")
    x = np.arange(elements, dtype=np.float32)
    with Engine(tmp_path) as engine:
        for _ in range(3):
            np.testing.assert_array_equal(engine.infer("m", x)["Y"], x * 2)
