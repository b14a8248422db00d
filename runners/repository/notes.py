"""
Notes about a configuration that is right, each with its field: what means nothing here, and what is other in Triton,
for whoever brings a repository from there or takes one back.
"""

from collections.abc import Iterator

from ..version_labels import VERSIONS
from .discovery import descriptor_of
from .messages import ModelConfig, ModelInstanceGroup
from .supported_fields import ALTERNATIVES, own_parameters, without_effect

__all__ = ["notes_of"]

_BACKENDS = f"{__package__.rpartition('.')[0]}.backends."
_IN_TRITON = {
    ALTERNATIVES: "Triton serves what config.pbtxt itself says",
    VERSIONS: "Triton knows no labels, and gives requests that name no version to the latest one",
}


def notes_of(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Of a checked one whose backend is known"""
    descriptor = descriptor_of(config.backend) if config.backend else None
    if descriptor and not descriptor.loads.startswith(_BACKENDS):
        yield "backend", f"backend '{config.backend}' comes from a package, Triton has none of that name"
    for key in sorted(own_parameters(config, descriptor) & {*config.parameters}):
        why = _IN_TRITON.get(key, "Triton does not look at it")
        yield f"parameters[{key}]", f"parameter '{key}' is Kushi's own, {why}"
    yield from without_effect(config, descriptor)
    for index, group in enumerate(config.instance_group):
        on_cpu = group.kind == ModelInstanceGroup.KIND_CPU
        if on_cpu and any(not getattr(resource, "global") for resource in group.rate_limiter.resources):
            path = f"instance_group[{index}].rate_limiter.resources"
            yield path, f"field '{path}' counts on a device of the CPU's own, in Triton on device 0"
