"""
Kushi: a Triton-style model repository served at native speed

What a program imports from here is loaded when it asks for it, so that the help of the command loads no native code.
"""

import logging
from typing import TYPE_CHECKING

from ._version import __version__
from .on_demand import on_demand

if TYPE_CHECKING:
    from kushi_native import Result, Tensor, Timings

    from .client import Client
    from .engine import Engine, ModelState
    from .errors import (
        AccessDenied,
        ConfigInvalid,
        ConnectionLost,
        DeadlineExceeded,
        EngineFailed,
        InternalError,
        InvalidInput,
        KushiError,
        ModelNotFound,
        ModelNotReady,
        ModelUnavailable,
        Overloaded,
        ShuttingDown,
        Unsupported,
    )
    from .model import Model
    from .restrictions import Restriction
    from .settings import (
        DeviceOptions,
        EngineOptions,
        GrpcOptions,
        HttpOptions,
        LogOptions,
        MetricsOptions,
        ModelOptions,
        RateLimitOptions,
        ServerTls,
        TraceOptions,
    )
    from .triton import TritonRunner

__all__ = [
    "AccessDenied",
    "Client",
    "ConfigInvalid",
    "ConnectionLost",
    "DeadlineExceeded",
    "DeviceOptions",
    "Engine",
    "EngineFailed",
    "EngineOptions",
    "GrpcOptions",
    "HttpOptions",
    "InternalError",
    "InvalidInput",
    "KushiError",
    "LogOptions",
    "MetricsOptions",
    "Model",
    "ModelNotFound",
    "ModelNotReady",
    "ModelOptions",
    "ModelState",
    "ModelUnavailable",
    "Overloaded",
    "RateLimitOptions",
    "Restriction",
    "Result",
    "ServerTls",
    "ShuttingDown",
    "Tensor",
    "Timings",
    "TraceOptions",
    "TritonRunner",
    "Unsupported",
    "__version__",
]

_MODULES = {
    "kushi_native": ("Result", "Tensor", "Timings"),
    ".client": ("Client",),
    ".engine": ("Engine", "ModelState"),
    ".errors": (
        "AccessDenied",
        "ConfigInvalid",
        "ConnectionLost",
        "DeadlineExceeded",
        "EngineFailed",
        "InternalError",
        "InvalidInput",
        "KushiError",
        "ModelNotFound",
        "ModelNotReady",
        "ModelUnavailable",
        "Overloaded",
        "ShuttingDown",
        "Unsupported",
    ),
    ".model": ("Model",),
    ".restrictions": ("Restriction",),
    ".settings": (
        "DeviceOptions",
        "EngineOptions",
        "GrpcOptions",
        "HttpOptions",
        "LogOptions",
        "MetricsOptions",
        "ModelOptions",
        "RateLimitOptions",
        "ServerTls",
        "TraceOptions",
    ),
    ".triton": ("TritonRunner",),
}
__getattr__ = on_demand(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# a program that does not ask for the log does not get it on its standard error
logging.getLogger(__name__).addHandler(logging.NullHandler())
