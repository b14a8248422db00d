"""Which backend executes a model, where config.pbtxt does not say: found by platform and files, as Triton does it"""

import os
from collections.abc import Iterator

from ..errors import ConfigInvalid
from .advice import in_sight
from .discovery import found
from .layout import ModelSource
from .messages import ModelConfig
from .triton_backends import FILES, NAMED_AS_PLATFORM

__all__ = ["detect_backend"]


def detect_backend(source: ModelSource, config: ModelConfig) -> str:
    """By platform or file name of the configuration, by the files of the first version, or by the model's name"""
    for backend, platform, file in _kinds():
        if (platform and config.platform == platform) or config.default_model_filename == file:
            return backend
    if config.platform in NAMED_AS_PLATFORM:
        return config.platform
    if config.platform or config.default_model_filename:
        return ""
    first = next(iter(source.versions.values()), None)
    for backend, _, file in _kinds():
        if first and os.path.lexists(first / file):
            return backend
    _, dot, suffix = source.name.partition(".")
    if dot:
        return suffix
    files = " or ".join(f"'{file}'" for one in found().all if not one.program for file in one.files)
    advice = in_sight(source.path, first) or f"expected {files}"
    raise ConfigInvalid(
        f"no model file found in '{first or source.path / '1'}', {advice}: Invalid model name: Could not determine "
        f"backend for model '{source.name}' with no backend in model configuration. Expected model name of the form "
        "'model.<backend_name>'."
    )


def _kinds() -> Iterator[tuple[str, str, str]]:
    """(backend, platform, default file) in the order in which they are looked for"""
    own = [
        (one.order, one.name, platform, file) for one in found().all if not one.program for platform, file in one.kinds
    ]
    names = {name for _, name, _, _ in own}
    others = [kind for kind in FILES if kind[1] not in names]
    for _, backend, platform, file in sorted([*own, *others], key=lambda kind: kind[:2]):
        yield backend, platform, file
