"""
The parts of a configuration that follow from its directory and from defaults, filled in as Triton does it.

Each function answers a new message; what the user wrote is never changed.
"""

from pathlib import Path

from ..errors import ConfigInvalid
from .layout import ModelSource
from .messages import ModelConfig, ModelInstanceGroup

__all__ = ["fill_backend", "fill_defaults", "fill_instance_groups"]

ONNX_BACKEND, ONNX_PLATFORM, ONNX_FILE = "onnxruntime", "onnxruntime_onnx", "model.onnx"
_DEFAULT_INSTANCES = {ONNX_BACKEND: 2}

# (backend, platform, default file) in the order in which Triton looks for them
_KNOWN = (
    ("tensorrt", "tensorrt_plan", "model.plan"),
    (ONNX_BACKEND, ONNX_PLATFORM, ONNX_FILE),
    ("openvino", "", "model.xml"),
    ("pytorch", "pytorch_libtorch", "model.pt"),
    ("pytorch", "torch_aoti", "model.pt2"),
    ("python", "", "model.py"),
)


def fill_backend(source: ModelSource, written: ModelConfig) -> ModelConfig:
    """Name, backend, platform and file name, from each other or from the content of the first version directory"""
    config = ModelConfig()
    config.CopyFrom(written)
    config.name = config.name or source.name
    if config.platform == "ensemble":
        return config
    if not config.backend:
        config.backend = _detect_backend(source, config)
    if config.backend == ONNX_BACKEND:
        config.platform = config.platform or ONNX_PLATFORM
        config.default_model_filename = config.default_model_filename or ONNX_FILE
    return config


def _detect_backend(source: ModelSource, config: ModelConfig) -> str:
    for backend, platform, file in _KNOWN:
        if (platform and config.platform == platform) or config.default_model_filename == file:
            return backend
    if config.platform or config.default_model_filename:
        return ""
    for backend, _, file in _KNOWN:
        if any(Path(directory, file).exists() for directory in list(source.versions.values())[:1]):
            return backend
    _, dot, suffix = source.name.partition(".")
    if dot:
        return suffix
    directory = next(iter(source.versions.values()), source.path / "1")
    raise ConfigInvalid(
        f"no model file found, expected '{directory / ONNX_FILE}': Invalid model name: Could not determine backend for "
        f"model '{source.name}' with no backend in model configuration. Expected model name of the form "
        "'model.<backend_name>'."
    )


def fill_defaults(written: ModelConfig) -> ModelConfig:
    """Version policy, preferred batch size and pinned memory where nothing is said"""
    config = ModelConfig()
    config.CopyFrom(written)
    if not config.HasField("version_policy"):
        config.version_policy.latest.num_versions = 1
    if config.HasField("dynamic_batching") and config.max_batch_size > 0:
        sizes = config.dynamic_batching.preferred_batch_size
        sizes.extend([] if sizes else [config.max_batch_size])
    for memory in ("input_pinned_memory", "output_pinned_memory"):
        if not config.optimization.HasField(memory):
            getattr(config.optimization, memory).enable = True
    return config


def fill_instance_groups(written: ModelConfig) -> ModelConfig:
    """At least one group, each with a name, a kind and a count"""
    config = ModelConfig()
    config.CopyFrom(written)
    if not config.instance_group:
        config.instance_group.add(name=config.name)
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        if group.kind == ModelInstanceGroup.KIND_AUTO and not group.gpus:
            group.kind = ModelInstanceGroup.KIND_CPU
        if group.count < 1:
            group.count = _DEFAULT_INSTANCES.get(config.backend, 1) if group.kind == ModelInstanceGroup.KIND_CPU else 1
    return config
