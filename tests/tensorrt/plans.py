"""Plans for the TensorRT that stands in, and models around them"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import onnx
import tensorrt  # type: ignore[import-not-found, unused-ignore]
from onnx import helper

from tests import models

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ADD_SUB", "ONE_GPU", "buildable", "plan", "tensor", "write"]

Said = Any
"""What a plan says beside its tensors"""
ONE_GPU = "instance_group { kind: KIND_GPU gpus: 0 }\n"


def tensor(name: str, shape: Sequence[int], datatype: str = "FP32", **more: Said) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "datatype": datatype, **more}


def plan(inputs: Sequence[dict[str, Any]], outputs: Sequence[dict[str, Any]], **more: Said) -> dict[str, Any]:
    return {"inputs": list(inputs), "outputs": list(outputs), **more}


ROWS = [[[1, 2], [4, 2], [8, 2]]]
ADD_SUB = plan(
    [tensor("A", [-1, 2], ranges=ROWS), tensor("B", [-1, 2], ranges=ROWS)],
    [tensor("SUM", [-1, 2], formula="A + B"), tensor("DIFFERENCE", [-1, 2], formula="A - B")],
)


def write(
    repository: Path, name: str, made: dict[str, Any] | bytes, text: str | None = None, file: str = "model.plan"
) -> Path:
    """Puts a plan into a repository; answers its directory"""
    folder = repository / name / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(made if isinstance(made, bytes) else tensorrt.written(made))
    if text is not None:
        (folder.parent / "config.pbtxt").write_text(text)
    return folder


def buildable(made: dict[str, Any]) -> bytes:
    """An ONNX file of which the TensorRT that stands in builds this plan, and which adds for everybody else"""
    model = models.model(
        [helper.make_node("Add", ["A", "B"], ["SUM"]), helper.make_node("Sub", ["A", "B"], ["DIFFERENCE"])],
        [models.tensor(name, "FP32", ["batch", 2]) for name in ("A", "B")],
        [models.tensor(name, "FP32", ["batch", 2]) for name in ("SUM", "DIFFERENCE")],
    )
    model.metadata_props.append(onnx.StringStringEntryProto(key="stand-in", value=json.dumps(made)))
    return model.SerializeToString()
