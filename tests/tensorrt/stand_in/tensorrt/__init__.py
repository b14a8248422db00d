"""
Stands in for TensorRT: plans are formulas of NumPy, executed in the streams of the driver that stands in for CUDA's.

Data types, flags and base classes are those of NVIDIA's own module, which loads with empty libraries. What stands here
in the place of one of its classes may have nothing that the class does not have, so that a call that TensorRT would not
take fails here too.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any

import numpy as np
import tensorrt_bindings as real

from ._building import (
    Builder,
    IBuilderConfig,
    INetworkDefinition,
    IOptimizationProfile,
    ITensor,
    ITimingCache,
    OnnxParser,
    ParserError,
)
from ._checked import in_place_of
from ._files import HEAD, compute_capability, written
from ._gate import wait_for

__all__ = [
    "Builder",
    "EngineInspector",
    "IBuilderConfig",
    "ICudaEngine",
    "IExecutionContext",
    "INetworkDefinition",
    "IOptimizationProfile",
    "ITensor",
    "ITimingCache",
    "OnnxParser",
    "ParserError",
    "Runtime",
    "init_libnvinfer_plugins",
    "written",
]

__version__ = real.__version__

_DRIVER = ctypes.CDLL("libcuda.so.1")
_KERNEL = ctypes.CFUNCTYPE(None)
_FAR = 1 << 62
_KERNELS: list[Any] = []
"""A graph may run one again at any time"""
_DTYPES = {
    "BOOL": (real.DataType.BOOL, np.bool_),
    "INT8": (real.DataType.INT8, np.int8),
    "UINT8": (real.DataType.UINT8, np.uint8),
    "FP16": (real.DataType.HALF, np.float16),
    "BF16": (real.DataType.BF16, np.uint16),
    "INT32": (real.DataType.INT32, np.int32),
    "FP32": (real.DataType.FLOAT, np.float32),
    "INT64": (real.DataType.INT64, np.int64),
    "FP8": (real.DataType.FP8, np.uint8),
}


def __getattr__(name: str) -> Any:
    return getattr(real, name)


def init_libnvinfer_plugins(logger: Any, namespace: str) -> bool:
    return True


@in_place_of(real.Runtime)
class Runtime:
    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self.engine_host_code_allowed = False

    def deserialize_cuda_engine(self, serialized_engine: Any) -> Any:
        content = bytes(serialized_engine)
        version = ".".join(map(str, HEAD.unpack_from(content)[2:]))
        try:
            plan = json.loads(content[HEAD.size :])
        except ValueError:
            return self._refused("Serialization assertion stdArchiveReader->readChecksum() failed")
        own = ".".join(__version__.split(".")[:4])
        if plan.get("compatible") and not self.engine_host_code_allowed:
            return self._refused("The engine contains host code, which is not allowed by this runtime.")
        if version != own and not plan.get("compatible"):
            return self._refused(
                "The engine plan file is not compatible with this version of TensorRT, expecting library version "
                f"{own} got {version}, please rebuild."
            )
        if plan["gpu"] != compute_capability():
            return self._refused(
                "The engine plan file is generated on an incompatible device, expecting compute "
                f"{compute_capability()} got compute {plan['gpu']}, please rebuild."
            )
        return ICudaEngine(plan, self._logger)

    def _refused(self, why: str) -> None:
        self._logger.log(real.ILogger.Severity.ERROR, f"IRuntime::deserializeCudaEngine: Error Code 1: {why}")


@in_place_of(real.ICudaEngine)
class ICudaEngine:
    def __init__(self, plan: dict[str, Any], logger: Any) -> None:
        self._plan = plan
        self._logger = logger
        self._tensors = {tensor["name"]: tensor for tensor in (*plan["inputs"], *plan["outputs"])}
        self.num_io_tensors = len(self._tensors)
        self.num_optimization_profiles = plan.get("profiles", 1)
        self.device_memory_size_v2 = 1024
        self.num_layers = len(plan["outputs"])
        self.name = plan.get("name", "")

    def get_tensor_name(self, index: int) -> str:
        return list(self._tensors)[index]

    def get_tensor_mode(self, name: str) -> Any:
        return real.TensorIOMode.INPUT if self._is_input(name) else real.TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> Any:
        return _DTYPES[self._tensors[name]["datatype"]][0]

    def get_tensor_format(self, name: str) -> Any:
        return real.TensorFormat.CHW32 if self._tensors[name].get("packed") else real.TensorFormat.LINEAR

    def get_tensor_format_desc(self, name: str) -> str:
        return "Thirty-two wide channel vectorized row-major format (kCHW32)"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name]["shape"])

    def get_tensor_location(self, name: str) -> Any:
        return real.TensorLocation.HOST if self._tensors[name].get("on_host") else real.TensorLocation.DEVICE

    def is_shape_inference_io(self, name: str) -> bool:
        return bool(self._tensors[name].get("on_host"))

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[tuple[int, ...]]:
        ranges = self._tensors[name].get("ranges")
        return [tuple(dims) for dims in ranges[profile_index]] if ranges else [self.get_tensor_shape(name)] * 3

    def get_tensor_profile_values(self, name: int, profile_index: str) -> list[list[int]]:
        # as in the real one, whose parameters have each other's names
        return [list(values) for values in self._tensors[profile_index]["values"][name]]

    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int:
        return int(self._plan.get("scratch", [self.device_memory_size_v2] * 8)[profile_index])

    def create_execution_context(self, strategy: Any = real.ExecutionContextAllocationStrategy.STATIC) -> Any:
        return IExecutionContext(self, self._plan, self._logger, strategy)

    def create_engine_inspector(self) -> Any:
        return EngineInspector(self._plan)

    def _is_input(self, name: str) -> bool:
        return any(tensor["name"] == name for tensor in self._plan["inputs"])


@in_place_of(real.EngineInspector)
class EngineInspector:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan

    def get_engine_information(self, format: Any) -> str:  # noqa: A002 - TensorRT's
        layers = [
            {"Name": f"compute {tensor['name']}", "LayerType": "Formula", "Outputs": [{"Name": tensor["name"]}]}
            for tensor in self._plan["outputs"]
        ]
        return json.dumps({"Layers": layers, "Bindings": []})


@in_place_of(real.IExecutionContext)
class IExecutionContext:
    def __init__(self, engine: ICudaEngine, plan: dict[str, Any], logger: Any, strategy: Any) -> None:
        self._scratch: tuple[int, int] | None = None
        self._needs_scratch = strategy == real.ExecutionContextAllocationStrategy.USER_MANAGED
        self._engine = engine
        self._plan = plan
        self._logger = logger
        self._profile = 0
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, Any] = {}
        self._is_of_graph = False

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        self._profile = profile_index
        return profile_index < self._engine.num_optimization_profiles

    def set_input_shape(self, name: str, shape: Any) -> bool:
        if self._is_kept_from(self._shapes.get(name) != tuple(shape)):
            return False
        least, _, most = self._engine.get_tensor_profile_shape(name, self._profile)
        if len(shape) != len(most) or not all(
            low <= dim <= high for low, dim, high in zip(least, shape, most, strict=True)
        ):
            self._fail(f"Set dimension {list(shape)} for tensor {name} does not satisfy any optimization profiles.")
            return False
        self._shapes[name] = tuple(shape)
        return True

    def set_tensor_address(self, name: str, memory: int) -> bool:
        if self._is_kept_from(self._addresses.get(name) != memory):
            return False
        self._addresses[name] = memory
        return name in self._engine._tensors

    def set_device_memory(self, memory: int, size: int) -> None:
        if memory % 256:
            raise ValueError("expected memory that is aligned to 256 bytes")
        self._scratch = memory, size

    def set_output_allocator(self, name: str, output_allocator: Any) -> bool:
        self._allocators[name] = output_allocator
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        tensor = self._engine._tensors[name]
        if name in self._shapes:
            return self._shapes[name]
        if tensor.get("grows"):
            return tuple(tensor["shape"])
        return np.shape(_computed(tensor, self._zeros()))

    def get_max_output_size(self, name: str) -> int:
        tensor = self._engine._tensors[name]
        # until inputs have their shapes TensorRT does not know
        if tensor.get("grows") or any(one["name"] not in self._shapes for one in self._plan["inputs"]):
            return -1
        return _computed(tensor, self._zeros()).nbytes

    def execute_async_v3(self, stream_handle: int) -> bool:
        self._is_of_graph |= _is_recorded(stream_handle)
        # the run is kept, and must not keep the context
        plan, shapes, addresses = self._plan, dict(self._shapes), dict(self._addresses)
        scratch, size = self._scratch or (0, 0)
        if why := self._refuses(size):
            self._fail(why)
            return False

        def given() -> dict[str, Any]:
            return {one["name"]: _at(addresses[one["name"]], shapes[one["name"]], one) for one in plan["inputs"]}

        growing = [one for one in plan["outputs"] if one.get("grows")]
        if growing:
            # how large they get is known when they are computed, for which the caller waits
            _DRIVER.cuStreamSynchronize(ctypes.c_void_p(stream_handle))
        for one in growing:
            found, allocator = _computed(one, given()), self._allocators[one["name"]]
            addresses[one["name"]] = allocator.reallocate_output_async(one["name"], 0, found.nbytes, 256, stream_handle)
            if not addresses[one["name"]]:
                self._fail(f"no memory for {one['name']}")
                return False
            allocator.notify_shape(one["name"], found.shape)

        def run() -> None:
            arrays = given()
            if gate := plan.get("gate"):
                wait_for(gate)
            if scratch:
                # whoever else has this memory sees it, as that of a real run
                _touch(scratch, size)
            for one in plan["outputs"]:
                found = _computed(one, arrays)
                _at(addresses[one["name"]], found.shape, one)[...] = found

        kernel = _KERNEL(run)
        _KERNELS.append(kernel)
        return bool(_DRIVER.stand_in_kernel(ctypes.c_void_p(stream_handle), kernel) == 0)

    def _is_kept_from(self, change: bool) -> bool:
        """NVIDIA advises a context of its own for each graph; TensorRT itself would not notice"""
        if self._is_of_graph and change:
            self._fail("a graph was recorded of this context")
        return self._is_of_graph and change

    def _refuses(self, scratch_bytes: int) -> str:
        needed = self._engine.get_device_memory_size_for_profile_v2(self._profile)
        if self._needs_scratch and scratch_bytes < needed:
            return f"{scratch_bytes} bytes of device memory do not suffice for profile {self._profile}"
        return str(self._plan.get("refuses", ""))

    def _zeros(self) -> dict[str, Any]:
        zeros = {}
        for one in self._plan["inputs"]:
            name, dtype = one["name"], _DTYPES[one["datatype"]][1]
            if one.get("on_host"):
                zeros[name] = _at(self._addresses[name], self._shapes[name], one)
            else:
                zeros[name] = np.zeros(self._shapes[name], dtype)
        return zeros

    def _fail(self, text: str) -> None:
        self._logger.log(real.ILogger.Severity.ERROR, f"IExecutionContext: Error Code 3: API Usage Error ({text})")


def _computed(tensor: dict[str, Any], arrays: dict[str, Any]) -> Any:
    with np.errstate(all="ignore"):
        found = eval(tensor["formula"], {"np": np}, arrays)
    return np.asarray(found, _DTYPES[tensor["datatype"]][1])


def _is_recorded(stream_handle: int) -> bool:
    status = ctypes.c_int()
    _DRIVER.cuStreamIsCapturing(ctypes.c_void_p(stream_handle), ctypes.byref(status))
    return bool(status.value)


def _touch(address: int, size: int) -> None:
    ctypes.memset(address ^ _FAR, 0xA5, size)


def _at(address: int, shape: tuple[int, ...], tensor: dict[str, Any]) -> Any:
    """The array there; one on the host has an address of the host"""
    dtype = np.dtype(_DTYPES[tensor["datatype"]][1])
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    near = address if tensor.get("on_host") else address ^ _FAR
    return np.frombuffer((ctypes.c_uint8 * size).from_address(near), dtype).reshape(shape)
