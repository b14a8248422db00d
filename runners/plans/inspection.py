"""What is inside of a plan, as far as it can be opened"""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ..backends.tensorrt.header import read_header
from ..backends.tensorrt.plan import PlanTensor
from ..errors import KushiError
from . import Inspected

__all__ = ["inspect_plan", "layer_names"]

_TENSORRT = ("TensorRT", "..backends.tensorrt.details")
_RTX = ("TensorRT-RTX", ".rtx.details")


def inspect_plan(path: Path, gpu_number: int = 0) -> Inspected:
    """Raises for what is no plan"""
    header = read_header(path)
    library, module = _RTX if header.is_rtx else _TENSORRT
    try:
        detail = import_module(module, __package__).details_of(path, gpu_number)
    except ImportError as error:
        return Inspected(header.written_by, header.is_rtx, (), 0, (), 0, f"{library} is not here: {error}")
    except KushiError as error:
        return Inspected(header.written_by, header.is_rtx, (), 0, (), 0, str(error))
    return Inspected(
        header.written_by,
        header.is_rtx,
        [_tensor(tensor) for tensor in detail.plan.tensors],
        detail.plan.profiles,
        layer_names(detail.layers),
        detail.memory_bytes,
        "",
    )


def _tensor(tensor: PlanTensor) -> Mapping[str, Any]:
    said: dict[str, Any] = {
        "name": tensor.name,
        "role": "input" if tensor.is_input else "output",
        "datatype": tensor.datatype,
        "shape": list(tensor.shape),
    }
    for key, ranges in (("profiles", tensor.ranges), ("values", tensor.values)):
        if ranges:
            said[key] = [{"min": list(one.least), "opt": list(one.best), "max": list(one.most)} for one in ranges]
    return said


def layer_names(text: str) -> list[str]:
    """Of what TensorRT says of the layers; a plan that was built without them has these alone, or none"""
    try:
        layers = json.loads(text).get("Layers", [])
    except ValueError:
        return []
    return [layer if isinstance(layer, str) else str(layer.get("Name", layer)) for layer in layers]
