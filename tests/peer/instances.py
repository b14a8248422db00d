"""Python models that differ in their instance groups and in one parameter: each says what it is made with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PLACED", "REFUSED", "REFUSED_OTHERWISE", "write"]


def _memory(text: str) -> str:
    return f'parameters {{ key: "FORCE_CPU_ONLY_INPUT_TENSORS" value {{ string_value: "{text}" }} }}'


PLACED: Final = {
    "placed": "",
    "placed_somewhere": "instance_group { kind: KIND_AUTO }",
    "placed_on_cpu": "instance_group { kind: KIND_CPU }",
    "placed_with_a_name": 'instance_group { name: "mine" }',
    "placed_by_itself": "instance_group { kind: KIND_MODEL }",
    "placed_with_inputs_on_cpu": _memory("yes"),
    "placed_with_inputs_anywhere": _memory("no"),
}
REFUSED: Final = {
    "placed_on_cpu_with_gpus": "instance_group { kind: KIND_CPU gpus: 0 }",
    "placed_by_itself_with_gpus": "instance_group { kind: KIND_MODEL gpus: 0 }",
    "placed_with_inputs_nowhere": _memory("maybe"),
}
# ours say what is missing: there is no GPU on this machine
REFUSED_OTHERWISE: Final = {
    "placed_on_gpu": (
        "instance_group { kind: KIND_GPU }",
        "has kind KIND_GPU but no GPUs are available",
        "has kind KIND_GPU but server does not support GPUs: the driver of NVIDIA ",
    ),
    "placed_on_a_gpu": (
        "instance_group { kind: KIND_GPU gpus: 0 }",
        "specifies invalid or unsupported gpu id 0. ",
        "has kind KIND_GPU but server does not support GPUs: the driver of NVIDIA ",
    ),
    "placed_somewhere_with_gpus": (
        "instance_group { kind: KIND_AUTO gpus: 0 }",
        "has kind KIND_CPU but specifies one or more GPUs",
        "specifies gpus [0] but server does not support GPUs: the driver of NVIDIA ",
    ),
}
_MODEL: Final = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        told = {name: value for name, value in args.items() if name not in ("model_config", "model_repository")}
        self.told = {**told, "groups": config["instance_group"]}

    def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "X")
        told = json.dumps({**self.told, "input_on_cpu": x.is_cpu()}, sort_keys=True)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", np.array([told], np.object_))]) for _ in requests]
"""
_CONFIG: Final = """
backend: "python"
input { name: "X" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "TOLD" data_type: TYPE_STRING dims: [ 1 ] }
"""


def write(repository: Path) -> None:
    others = {name: text for name, (text, *_) in REFUSED_OTHERWISE.items()}
    for name, text in {**PLACED, **REFUSED, **others}.items():
        version = repository / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(_MODEL)
        (repository / name / "config.pbtxt").write_text(_CONFIG + text)
