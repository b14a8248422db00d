"""
Backends that Triton has and this package has not, on purpose: their models are found, so that each is refused by its
name, with what to use in its place.
"""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["FILES", "NAMED_AS_PLATFORM", "PYTHON_BASED", "instead_of"]

FILES = ((60, "dali", "dali", "model.dali"),)
"""Order, backend, platform and default file of those that are told by their file"""

NAMED_AS_PLATFORM = frozenset({"fil", "tensorrtllm", "vllm"})
"""What models name as their platform, which is a mistake, but says what is missing"""

PYTHON_BASED = frozenset({"diffusion", "vllm"})
"""Those that are a model.py for all their models"""

_PYTHON = "a Python model with "
_INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "dali": f"{_PYTHON}nvidia.dali, whose pipeline is built in initialize",
        "fastdeploy": "the ONNX model that it wraps",
        "fastertransformer": f"{_PYTHON}tensorrt_llm or vllm, decoupled for streams of tokens",
        "identity": f"{_PYTHON}nothing else",
        "paddle": "the model as ONNX (paddle2onnx)",
        "repeat": f"{_PYTHON}nothing else, decoupled",
        "square": f"{_PYTHON}nothing else, decoupled",
        "tensorrtllm": f"{_PYTHON}tensorrt_llm, decoupled for streams of tokens",
    }
)


def instead_of(backend: str) -> str | None:
    """What to use in the place of a backend of Triton's"""
    return _INSTEAD.get(backend)
