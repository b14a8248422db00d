"""
Stands in for opening plans with TensorRT for RTX, which needs a GPU. What is not here is that of NVIDIA's own module,
and builds without one.
"""

from __future__ import annotations

import json
from typing import Any

import tensorrt
import tensorrt_rtx_bindings as real
from tensorrt._checked import in_place_of
from tensorrt._files import HEAD, written

__all__ = ["EngineInspector", "ICudaEngine", "Runtime", "written_for_rtx"]

__version__ = real.__version__

EngineInspector = in_place_of(real.EngineInspector)(tensorrt.EngineInspector)
ICudaEngine = in_place_of(real.ICudaEngine)(tensorrt.ICudaEngine)


def __getattr__(name: str) -> Any:
    return getattr(real, name)


def written_for_rtx(plan: dict[str, Any], version: str = real.__version__) -> bytes:
    """The file of a plan"""
    return bytes(written(plan, version, b"vtrt"))


@in_place_of(real.Runtime)
class Runtime:
    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def deserialize_cuda_engine(self, serialized_engine: Any) -> Any:
        content = bytes(serialized_engine)
        tag, _, *numbers = HEAD.unpack_from(content)
        if tag != b"vtrt" or ".".join(map(str, numbers)) != __version__:
            self._logger.log(real.ILogger.Severity.ERROR, "Error Code 1: the engine is of another version")
            return None
        return ICudaEngine(json.loads(content[HEAD.size :]), self._logger)
