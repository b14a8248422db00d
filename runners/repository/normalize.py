"""
The parts of a configuration that follow from its directory and from defaults, filled in as Triton does it.

Each function answers a new message; what the user wrote is never changed.
"""

from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigInvalid
from .frameworks import FRAMEWORKS
from .layout import ModelSource
from .messages import ModelConfig, ModelInstanceGroup

__all__ = ["fill_backend", "fill_defaults", "fill_instance_groups"]

# (backend, platform, default file) in the order in which Triton looks for them
_KNOWN = (
    ("tensorrt", "tensorrt_plan", "model.plan"),
    ("onnxruntime", "onnxruntime_onnx", "model.onnx"),
    ("onnxruntime", "onnxruntime_onnx", "model.ort"),
    ("openvino", "", "model.xml"),
    ("pytorch", "pytorch_libtorch", "model.pt"),
    ("pytorch", "libtorch", "model.pt"),
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
    if framework := FRAMEWORKS.get(config.backend):
        config.platform = config.platform or framework.platforms[0]
        config.default_model_filename = config.default_model_filename or _existing(source, framework.files)
    return config


def _existing(source: ModelSource, files: Sequence[str]) -> str:
    """The first of `files` that the first version has, or else the first of them"""
    directories = list(source.versions.values())[:1]
    return next((file for file in files if any((path / file).exists() for path in directories)), files[0])


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
    expected = next(iter(source.versions.values()), source.path / "1") / "model.onnx"
    raise ConfigInvalid(
        f"no model file found, expected '{expected}': Invalid model name: Could not determine backend for "
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


def fill_instance_groups(written: ModelConfig, gpus: Sequence[int] = ()) -> ModelConfig:
    """At least one group, each with a name, a kind and a count; `gpus` are those that the backend can use"""
    config = ModelConfig()
    config.CopyFrom(written)
    framework = FRAMEWORKS.get(config.backend)
    if not config.instance_group:
        config.instance_group.add(name=config.name)
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        if group.kind == ModelInstanceGroup.KIND_AUTO:
            if gpus and set(group.gpus) <= set(gpus):
                group.kind = ModelInstanceGroup.KIND_GPU
            elif not group.gpus:
                group.kind = ModelInstanceGroup.KIND_CPU
        if group.kind == ModelInstanceGroup.KIND_GPU and not group.gpus:
            group.gpus.extend(gpus)
        if group.count < 1:
            group.count = framework.cpu_instances if framework and group.kind == ModelInstanceGroup.KIND_CPU else 1
    return config
