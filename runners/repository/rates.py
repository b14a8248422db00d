"""`rate_limiter`: what the instances of a model have to have before they execute"""

from pydantic import BaseModel, ConfigDict

from ..errors import ConfigInvalid
from .messages import ModelConfig, ModelInstanceGroup

__all__ = ["RateSpecification", "check_resources", "rates_of_instances"]

_MOST_RESOURCES = 64
"""Of one instance: all of them are written out for each of up to 1024 instances"""
_LONGEST_NAME = 256


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


def check_resources(config: ModelConfig) -> None:
    """Raises where an instance needs more resources than any does, whether or not the server limits rates"""
    for index, group in enumerate(config.instance_group):
        resources = group.rate_limiter.resources
        field = f"field 'instance_group[{index}].rate_limiter.resources'"
        if len(resources) > _MOST_RESOURCES:
            raise ConfigInvalid(f"{field} has {len(resources)} resources, expected at most {_MOST_RESOURCES}")
        if (longest := max((len(one.name) for one in resources), default=0)) > _LONGEST_NAME:
            raise ConfigInvalid(f"{field} has a name of {longest} characters, expected at most {_LONGEST_NAME}")


def rates_of_instances(config: ModelConfig) -> tuple[RateSpecification, ...]:
    """One for each instance, after `fill_instance_groups`; none at all where no instance needs resources"""
    groups = config.instance_group
    if not any(group.rate_limiter.resources for group in groups):
        return ()
    rates: list[RateSpecification] = []
    for group in groups:
        for device in group.gpus if group.kind == ModelInstanceGroup.KIND_GPU else [None]:
            # the instances of a group on one device share what they need
            rates += [_rate(group, device)] * group.count
    return tuple(rates)


def _rate(group: ModelInstanceGroup, device: int | None) -> RateSpecification:
    limiter = group.rate_limiter
    resources = (
        ResourceSpecification(name=one.name, is_global=getattr(one, "global"), count=one.count)
        for one in limiter.resources
    )
    return RateSpecification(device=device, priority=limiter.priority, resources=tuple(resources))
