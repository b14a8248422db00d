"""`rate_limiter`: what the instances of a model have to have before they execute"""

from pydantic import BaseModel, ConfigDict

from .messages import ModelConfig, ModelInstanceGroup

__all__ = ["RateSpecification", "rates_of_instances"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ResourceSpecification(_Frozen):
    """A resource that an instance needs; a `global` one is the same for all devices"""

    name: str
    is_global: bool
    count: int


class RateSpecification(_Frozen):
    """Of one instance; `device` is the number of its GPU"""

    device: int | None
    priority: int
    resources: tuple[ResourceSpecification, ...]


def rates_of_instances(config: ModelConfig) -> tuple[RateSpecification, ...]:
    """One for each instance, after `fill_instance_groups`; none at all where no instance needs resources"""
    groups = config.instance_group
    if not any(group.rate_limiter.resources for group in groups):
        return ()
    return tuple(
        _rate(group, device)
        for group in groups
        for device in (group.gpus if group.kind == ModelInstanceGroup.KIND_GPU else [None])
        for _ in range(group.count)
    )


def _rate(group: ModelInstanceGroup, device: int | None) -> RateSpecification:
    limiter = group.rate_limiter
    resources = (
        ResourceSpecification(name=one.name, is_global=getattr(one, "global"), count=one.count)
        for one in limiter.resources
    )
    return RateSpecification(device=device, priority=limiter.priority, resources=tuple(resources))
