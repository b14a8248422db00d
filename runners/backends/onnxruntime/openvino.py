"""
OpenVINO on the CPU: ONNX Runtime's provider for it lies in a package of its own, and is opened when the first model
asks for it.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import kushi_native

from ...errors import ConfigInvalid
from ..openvino_wheel import check_alone, openvino_library, start
from .files import ModelFiles
from .library import Runtime
from .values import Accelerator, Option, Options, at_least, cache

__all__ = ["OPENVINO", "offered", "properties"]

_PACKAGE, _LIBRARY = "onnxruntime_ep_openvino", "libonnxruntime_providers_openvino_plugin.so"
_THREADS = "INFERENCE_NUM_THREADS"
_PRECISIONS = MappingProxyType(
    {
        "ACCURACY": (("EXECUTION_MODE_HINT", "ACCURACY"),),
        "BF16": (("INFERENCE_PRECISION_HINT", "bf16"),),
        "FP16": (("INFERENCE_PRECISION_HINT", "f16"),),
        "FP32": (("INFERENCE_PRECISION_HINT", "f32"),),
    }
)
_SAY_PRECISION = frozenset(key for options in _PRECISIONS.values() for key, _ in options)


def _precision(value: str, what: str, _: ModelFiles) -> Options:
    if value not in _PRECISIONS:
        raise ConfigInvalid(f"{what}: expected one of {', '.join(_PRECISIONS)}, got '{value}'")
    return _PRECISIONS[value]


OPENVINO = Accelerator(
    title="OpenVINO",
    provider="OpenVINOExecutionProvider",
    install="pip install 'kushi[openvino]'",
    parameters=MappingProxyType(
        {
            "cache_dir": Option("CACHE_DIR", cache),
            "num_of_threads": Option(_THREADS, at_least(1)),
            "num_streams": Option("NUM_STREAMS", at_least(1)),
            "precision": _precision,
        }
    ),
    refused=MappingProxyType(
        {
            "device_id": "is the CPU, in an instance group of KIND_CPU",
            "device_type": "is the CPU, in an instance group of KIND_CPU",
            "load_config": "is made of the other parameters",
        }
    ),
    read_by_triton=False,
)


def offered(runtime: Runtime) -> Runtime:
    """`runtime` with the provider of the package, where that is installed and takes the CPU of this machine"""
    if OPENVINO.provider in runtime.providers:
        return runtime
    package = find_spec(_PACKAGE)
    roots = (package.submodule_search_locations if package else None) or []
    library = next((path for root in roots if (path := Path(root, _LIBRARY)).is_file()), None)
    if library is None:
        return runtime
    if openvino_library():
        start()
    check_alone(library.parent)
    kushi_native.register_onnxruntime_providers(str(library))
    providers = tuple(kushi_native.onnxruntime_providers())
    if OPENVINO.provider not in providers:
        raise ConfigInvalid(f"OpenVINO takes CPUs of Intel alone, and shows none here: '{library}'")
    return replace(runtime, providers=providers)


def properties(options: Iterable[tuple[str, str]], threads: int) -> Options:
    """
    What `OPENVINO` has read, as the provider takes it. Unless they are stated, an instance has `threads`, and computes
    in FP32: OpenVINO itself would take BF16 on a CPU that has it.
    """
    stated = {_THREADS: str(threads), **dict(options)}
    if not _SAY_PRECISION & stated.keys():
        stated |= _PRECISIONS["FP32"]
    return (("load_config", json.dumps({"CPU": stated})),)
