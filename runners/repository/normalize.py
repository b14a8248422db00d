"""
The parts of a configuration that follow from its directory and from defaults, filled in as Triton does it.

Each function answers a new message; what the user wrote is never changed.
"""

import os
from collections.abc import Sequence

from .descriptor import Descriptor
from .detection import detect_backend
from .discovery import descriptors
from .ensemble import is_ensemble
from .layout import ModelSource
from .messages import ModelConfig, ModelInstanceGroup

__all__ = ["fill_backend", "fill_defaults", "fill_instance_groups"]


def fill_backend(source: ModelSource, written: ModelConfig) -> ModelConfig:
    """Name, backend, platform and file name, from each other or from the content of the first version directory"""
    config = ModelConfig()
    config.CopyFrom(written)
    config.name = config.name or source.name
    if is_ensemble(config):
        return config
    if not config.backend:
        config.backend = detect_backend(source, config)
    if descriptor := descriptors().get(config.backend):
        config.platform = config.platform or descriptor.platforms[0]
        config.default_model_filename = config.default_model_filename or _existing(source, _files(config, descriptor))
    return config


def _files(config: ModelConfig, descriptor: Descriptor) -> list[str]:
    """The default names of its file: where a parameter says which one, that alone"""
    all_files = list(descriptor.files)
    for key, files in descriptor.files_of.items():
        if stated := files.get(config.parameters[key].string_value if key in config.parameters else ""):
            return [stated]
        all_files += [file for file in files.values() if file not in all_files]
    return all_files


def _existing(source: ModelSource, files: Sequence[str]) -> str:
    """The first of `files` that the first version has, or else the first of them"""
    directories = list(source.versions.values())[:1]
    return next((file for file in files if any(os.path.lexists(path / file) for path in directories)), files[0])


def fill_defaults(written: ModelConfig) -> ModelConfig:
    """Version policy, preferred batch size and pinned memory where nothing is said"""
    config = ModelConfig()
    config.CopyFrom(written)
    if not config.HasField("version_policy"):
        config.version_policy.latest.num_versions = 1
    if config.HasField("dynamic_batching") and config.max_batch_size > 0:
        sizes = config.dynamic_batching.preferred_batch_size
        sizes.extend([] if sizes else [config.max_batch_size])
    if is_ensemble(config):
        return config
    for memory in ("input_pinned_memory", "output_pinned_memory"):
        if not config.optimization.HasField(memory):
            getattr(config.optimization, memory).enable = True
    return config


def fill_instance_groups(written: ModelConfig, gpus: Sequence[int] = ()) -> ModelConfig:
    """At least one group, each with a name, a kind and a count; `gpus` are those that the backend can use"""
    config = ModelConfig()
    config.CopyFrom(written)
    descriptor = descriptors().get(config.backend)
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
            group.count = descriptor.cpu_instances if descriptor and group.kind == ModelInstanceGroup.KIND_CPU else 1
    return config
