"""
The libraries of CUDA that packages bring.

ONNX Runtime opens its CUDA provider when a session asks for it, and that provider needs libraries that the system may
not have where pip has installed them: then they are opened here, by their paths, before.
"""

import ctypes
import logging
from functools import cache
from importlib.util import find_spec
from pathlib import Path

__all__ = ["PROVIDER", "preload", "preload_tensorrt"]

_LOG = logging.getLogger(__name__)

PROVIDER = "CUDAExecutionProvider"
# in the order of their dependencies: (package, directory in it, library)
_LIBRARIES = (
    ("nvidia", "cu13/lib", "libcublasLt.so.13"),
    ("nvidia", "cu13/lib", "libcublas.so.13"),
    ("nvidia", "cu13/lib", "libnvrtc.so.13"),
    ("nvidia", "cu13/lib", "libcurand.so.10"),
    ("nvidia", "cu13/lib", "libcufft.so.12"),
    ("nvidia", "cu13/lib", "libcudart.so.13"),
    ("nvidia", "cudnn/lib", "libcudnn.so.9"),
)
_TENSORRT_LIBRARIES = (
    ("tensorrt_libs", ".", "libnvinfer.so.10"),
    ("tensorrt_libs", ".", "libnvinfer_plugin.so.10"),
    ("tensorrt_libs", ".", "libnvonnxparser.so.10"),
)


@cache
def preload() -> None:
    """Opens the libraries of CUDA and cuDNN that packages have brought; the others are left to the system"""
    _open(_LIBRARIES)


@cache
def preload_tensorrt() -> None:
    """The same for TensorRT"""
    preload()
    _open(_TENSORRT_LIBRARIES)


def _open(libraries: tuple[tuple[str, str, str], ...]) -> None:
    for package, directory, name in libraries:
        spec = find_spec(package)
        roots = (spec.submodule_search_locations if spec else None) or []
        # of several environments the first counts, as for an import
        path = next((path for root in roots if (path := Path(root, directory, name)).is_file()), None)
        if path is None:
            continue
        try:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            _LOG.warning("'%s' cannot be loaded: %s", path, error)
