"""
The protobuf classes of the model configuration, as tritonclient ships them.

Only the one generated module is executed: importing the package around it would pull in grpc and numpy, which
costs more time than the rest of the start-up together. `messages.pyi` is generated from the same descriptors.
"""

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

__all__ = [
    "DataType",
    "ModelConfig",
    "ModelEnsembling",
    "ModelInput",
    "ModelInstanceGroup",
    "ModelOptimizationPolicy",
    "ModelOutput",
    "ModelQueuePolicy",
    "ModelWarmup",
]

_GENERATED = "tritonclient.grpc.model_config_pb2"


def _generated() -> ModuleType:
    package = find_spec("tritonclient")
    roots = (package.submodule_search_locations if package else None) or []
    for root in roots:
        spec = spec_from_file_location(_GENERATED, Path(root, "grpc", "model_config_pb2.py"))
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise ImportError("tritonclient is not installed, or has no grpc/model_config_pb2.py: pip install tritonclient")


_module = _generated()
DataType = _module.DataType
ModelConfig = _module.ModelConfig
ModelEnsembling = _module.ModelEnsembling
ModelInput = _module.ModelInput
ModelInstanceGroup = _module.ModelInstanceGroup
ModelOptimizationPolicy = _module.ModelOptimizationPolicy
ModelOutput = _module.ModelOutput
ModelQueuePolicy = _module.ModelQueuePolicy
ModelWarmup = _module.ModelWarmup
