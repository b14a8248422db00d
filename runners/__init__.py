"""Kushi: a Triton-style model repository served at native speed"""

from ._version import __version__
from .engine import Engine, EngineOptions, ModelState
from .errors import (
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

__all__ = [
    "ConfigInvalid",
    "ConnectionLost",
    "DeadlineExceeded",
    "Engine",
    "EngineFailed",
    "EngineOptions",
    "InternalError",
    "InvalidInput",
    "KushiError",
    "ModelNotFound",
    "ModelNotReady",
    "ModelState",
    "ModelUnavailable",
    "Overloaded",
    "ShuttingDown",
    "Unsupported",
    "__version__",
]
