"""Kushi: a Triton-style model repository served at native speed"""

from kushi_native import Result, Tensor, Timings

from ._version import __version__
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
from .options import EngineOptions, Limits
from .restrictions import Restriction
from .tls import ServerTls
from .triton import TritonRunner

__all__ = [
    "AccessDenied",
    "Client",
    "ConfigInvalid",
    "ConnectionLost",
    "DeadlineExceeded",
    "Engine",
    "EngineFailed",
    "EngineOptions",
    "InternalError",
    "InvalidInput",
    "KushiError",
    "Limits",
    "Model",
    "ModelNotFound",
    "ModelNotReady",
    "ModelState",
    "ModelUnavailable",
    "Overloaded",
    "Restriction",
    "Result",
    "ServerTls",
    "ShuttingDown",
    "Tensor",
    "Timings",
    "TritonRunner",
    "Unsupported",
    "__version__",
]
