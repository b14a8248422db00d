"""Building: an ONNX file gives the plan that its metadata say"""

from __future__ import annotations

import json
from typing import Any

import tensorrt_bindings as real

from ._checked import in_place_of
from ._files import written
from ._gate import wait_for

__all__ = [
    "Builder",
    "IBuilderConfig",
    "INetworkDefinition",
    "IOptimizationProfile",
    "ITensor",
    "ITimingCache",
    "OnnxParser",
    "ParserError",
]


@in_place_of(real.Builder)
class Builder:
    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def create_network(self, flags: int = 0) -> Any:
        if not flags >> int(real.NetworkDefinitionCreationFlag.STRONGLY_TYPED) & 1:
            raise ValueError("expected a strongly typed network")
        return INetworkDefinition()

    def create_builder_config(self) -> Any:
        return IBuilderConfig()

    def create_optimization_profile(self) -> Any:
        return IOptimizationProfile()

    def build_serialized_network(self, network: Any, config: Any) -> Any:
        plan = network._plan
        if plan.get("unbuildable"):
            self._logger.log(real.ILogger.Severity.ERROR, plan["unbuildable"])
            return None
        if gate := plan.pop("build_gate", None):
            wait_for(gate)
        monitor = config.progress_monitor
        monitor.phase_start("Building Engine", None, 2)
        for step in range(2):
            monitor.step_complete("Building Engine", step)
        monitor.phase_finish("Building Engine")
        for one in plan["inputs"]:
            values = [profile._values[one["name"]] for profile in config._profiles if one["name"] in profile._values]
            if one.get("on_host") and not values:
                self._logger.log(real.ILogger.Severity.ERROR, f"shape input without values in a profile: {one['name']}")
                return None
            if values:
                one["values"] = values
            ranges = [profile._ranges[one["name"]] for profile in config._profiles if one["name"] in profile._ranges]
            if ranges:
                one["ranges"] = ranges
            elif -1 in one["shape"]:
                self._logger.log(
                    real.ILogger.Severity.ERROR, f"Network has dynamic or shape inputs, but no profile: {one['name']}"
                )
                return None
        if real.BuilderFlag.VERSION_COMPATIBLE in config._flags:
            plan["compatible"] = True
        return written({**plan, "profiles": max(1, len(config._profiles))})


@in_place_of(real.IOptimizationProfile)
class IOptimizationProfile:
    def __init__(self) -> None:
        self._ranges: dict[str, list[list[int]]] = {}
        self._values: dict[str, list[list[int]]] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:  # noqa: A002 - TensorRT's
        self._ranges[input] = [list(min), list(opt), list(max)]

    def set_shape_input(self, input: str, min: Any, opt: Any, max: Any) -> None:  # noqa: A002 - TensorRT's
        self._values[input] = [list(min), list(opt), list(max)]


@in_place_of(real.IBuilderConfig)
class IBuilderConfig:
    def __init__(self) -> None:
        self._profiles: list[Any] = []
        self._cache: Any = None
        self._flags: set[Any] = set()
        self.progress_monitor: Any = None
        self.builder_optimization_level = 3
        self.profiling_verbosity: Any = None
        self.hardware_compatibility_level: Any = None

    def add_optimization_profile(self, profile: Any) -> int:
        self._profiles.append(profile)
        return len(self._profiles) - 1

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        pass

    def set_flag(self, flag: Any) -> None:
        self._flags.add(flag)

    def clear_flag(self, flag: Any) -> None:
        self._flags.discard(flag)

    def create_timing_cache(self, serialized_timing_cache: Any) -> Any:
        return ITimingCache(bytes(serialized_timing_cache))

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        if cache._content and not cache._content.startswith(b"timings of Stand-in GPU"):
            return False
        self._cache = cache
        return True

    def get_timing_cache(self) -> Any:
        return self._cache


@in_place_of(real.ITimingCache)
class ITimingCache:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def serialize(self) -> Any:
        return self._content or b"timings of Stand-in GPU"


@in_place_of(real.INetworkDefinition)
class INetworkDefinition:
    def __init__(self) -> None:
        self._plan: dict[str, Any] = {}

    @property
    def num_inputs(self) -> int:
        return len(self._plan["inputs"])

    def get_input(self, index: int) -> Any:
        return ITensor(self._plan["inputs"][index])


@in_place_of(real.ITensor)
class ITensor:
    def __init__(self, tensor: dict[str, Any]) -> None:
        self.name = tensor["name"]
        self.shape = tuple(tensor["shape"])
        self.is_shape_tensor = bool(tensor.get("on_host"))


@in_place_of(real.OnnxParser)
class OnnxParser:
    def __init__(self, network: Any, logger: Any) -> None:
        self._network = network
        self._errors: list[Any] = []

    def parse_from_file(self, model: str) -> bool:
        import onnx

        try:
            found = onnx.load(model)
        except Exception:  # noqa: BLE001 - whatever is in the file
            self._errors.append(ParserError("Failed to parse the ONNX model."))
            return False
        said = {entry.key: entry.value for entry in found.metadata_props}
        if "stand-in" not in said:
            self._errors.append(ParserError("the stand-in builds what 'stand-in' in the metadata says"))
            return False
        self._network._plan = json.loads(said["stand-in"])
        return True

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> Any:
        return self._errors[index]


@in_place_of(real.ParserError)
class ParserError:
    def __init__(self, text: str) -> None:
        self._text = text

    def node(self) -> int:
        return -1

    def node_name(self) -> str:
        return ""

    def desc(self) -> str:
        return self._text
