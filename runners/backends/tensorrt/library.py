"""TensorRT's Python package, wherever it is, with what it logs"""

import ctypes
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from ...errors import ConfigInvalid, EngineFailed
from . import shapes
from .messages import Messages

if TYPE_CHECKING:
    import tensorrt as trt
else:
    try:
        import tensorrt as trt
    except ModuleNotFoundError:
        # an image that has TensorRT's libraries from its system has their Python module under this name
        import tensorrt_bindings as trt

__all__ = ["LOGGER", "dims", "load_plugins", "runtime", "trt", "version"]


class Logger(Messages, trt.ILogger):  # type: ignore[misc] # untyped where there are no stubs of it
    """What TensorRT says"""

    def __init__(self) -> None:
        Messages.__init__(self, "TensorRT")
        trt.ILogger.__init__(self)


LOGGER = Logger()
_PLUGINS: dict[str, ctypes.CDLL] = {}


def version() -> tuple[int, ...]:
    """Of the library, as plans are bound to it: major, minor, patch, build"""
    return tuple(int(part) for part in str(trt.__version__).split(".")[:4])


def dims(shape: "trt.Dims") -> tuple[int, ...]:
    """As a tuple"""
    return shapes.dims(shape, LOGGER.why)


@cache
def _common_plugins() -> None:
    # a capsule by its types, and any logger by its documentation
    logger: Any = LOGGER
    trt.init_libnvinfer_plugins(logger, "")


def load_plugins(setting: str) -> None:
    """TensorRT's own, and the libraries of the setting `plugins`, each once in the process"""
    _common_plugins()
    for path in filter(None, (part.strip() for part in setting.split(";"))):
        if path in _PLUGINS:
            continue
        try:
            _PLUGINS[path] = ctypes.CDLL(path, mode=os.RTLD_GLOBAL)
        except OSError as error:
            raise ConfigInvalid(f"backend config 'tensorrt,plugins': '{path}' cannot be loaded: {error}") from None


def runtime(*, runs_code_of_plans: bool) -> "trt.Runtime":
    """What opens plans; those that carry a runtime of their own only where that is allowed"""
    try:
        made = trt.Runtime(LOGGER)
    except TypeError as error:
        # how its module says that there is none
        raise EngineFailed(f"TensorRT cannot be used: {LOGGER.why()}") from error
    made.engine_host_code_allowed = runs_code_of_plans
    return made
