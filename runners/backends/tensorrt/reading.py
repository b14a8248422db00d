"""An engine of TensorRT as the values of `plan`, whichever of its libraries has opened it"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import Unsupported
from .plan import Plan, PlanTensor, Range
from .shapes import dims

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .library import trt

__all__ = ["Details", "read_details", "read_plan"]

_DATATYPES = {
    "BOOL": "BOOL",
    "INT8": "INT8",
    "UINT8": "UINT8",
    "HALF": "FP16",
    "BF16": "BF16",
    "INT32": "INT32",
    "FLOAT": "FP32",
    "INT64": "INT64",
}


@dataclass(frozen=True)
class Details:
    """For whoever looks at a plan"""

    plan: Plan
    layers: str
    """As TensorRT says it, in JSON"""
    memory_bytes: int
    """Of the GPU, for what one context computes"""


def read_details(engine: trt.ICudaEngine, form: trt.LayerInformationFormat, why: Callable[[], str]) -> Details:
    """form: JSON, as the library calls it"""
    layers = engine.create_engine_inspector().get_engine_information(form)
    return Details(read_plan(engine, why), layers, engine.device_memory_size_v2)


def read_plan(engine: trt.ICudaEngine, why: Callable[[], str]) -> Plan:
    """Raises for tensors that no request could have; `why` tells the last error of the library"""
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    return Plan(tuple(_tensor(engine, name, why) for name in names), engine.num_optimization_profiles)


def _tensor(engine: trt.ICudaEngine, name: str, why: Callable[[], str]) -> PlanTensor:
    datatype = _DATATYPES.get(engine.get_tensor_dtype(name).name)
    if datatype is None:
        raise Unsupported(
            f"tensor '{name}' has the data type {engine.get_tensor_dtype(name)}, which the protocol does not have: "
            "build the plan with another one at its ends"
        )
    if engine.get_tensor_format(name).name != "LINEAR":
        raise Unsupported(
            f"tensor '{name}' has the format {engine.get_tensor_format_desc(name)}: build the plan with linear formats "
            "at its ends"
        )
    is_input = engine.get_tensor_mode(name).name == "INPUT"
    profiles: Sequence[int] = range(engine.num_optimization_profiles) if is_input else ()
    holds_shapes = is_input and engine.is_shape_inference_io(name)
    valued: Sequence[int] = profiles if holds_shapes else ()
    return PlanTensor(
        name=name,
        is_input=is_input,
        datatype=datatype,
        shape=dims(engine.get_tensor_shape(name), why),
        on_host=engine.get_tensor_location(name).name == "HOST",
        ranges=tuple(_ranges(engine, name, profile, why) for profile in profiles),
        values=tuple(_values(engine, name, profile) for profile in valued),
    )


def _ranges(engine: trt.ICudaEngine, name: str, profile: int, why: Callable[[], str]) -> Range:
    return Range(*(dims(shape, why) for shape in engine.get_tensor_profile_shape(name, profile)))


def _values(engine: trt.ICudaEngine, name: str, profile: int) -> Range:
    try:
        # the module names these two parameters the wrong way round, so they are given by their places
        least, best, most = map(tuple, engine.get_tensor_profile_values(profile, name))
    except (RuntimeError, ValueError):
        raise Unsupported(
            f"TensorRT does not tell which values shape tensor '{name}' may have in profile {profile}: build the plan "
            "with this version, and a shape tensor of fixed length"
        ) from None
    return Range(least, best, most)
