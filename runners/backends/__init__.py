"""
The frameworks that execute models, one module each, imported when a model asks for it.

A backend module has one function, `load(source, config, version, *, auto_complete) -> Loaded`.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from kushi_native import OnnxModel

from ..errors import Unsupported
from ..repository.layout import ModelSource
from ..repository.messages import ModelConfig
from ..repository.specification import Specification

__all__ = ["Backend", "Loaded", "backend"]

_MODULES = {"onnxruntime": ".onnxruntime"}


@dataclass(frozen=True)
class Loaded:
    """One version, ready to be handed to the core: one session for all instances, or one for each"""

    specification: Specification
    sessions: list[OnnxModel]
    intra_op_threads: int


class Backend(Protocol):
    """What a backend module offers"""

    def load(self, source: ModelSource, config: ModelConfig, version: int, *, auto_complete: bool) -> Loaded:
        """Opens one version of a model whose configuration is checked but not yet completed"""
        ...


def backend(name: str) -> Backend:
    """The backend that config.pbtxt calls `name`"""
    if name not in _MODULES:
        raise Unsupported(f"backend '{name}' is not supported by this version, expected one of {', '.join(_MODULES)}")
    return cast("Backend", import_module(_MODULES[name], __package__))
