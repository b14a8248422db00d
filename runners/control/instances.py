"""
What a version that serves may take over of other instance groups without being opened again: how many instances there
are, where they share what was opened.
"""

from collections.abc import Mapping

from ..backends.cores import cores_for_all
from ..errors import KushiError
from ..repository.messages import ModelConfig, ModelInstanceGroup
from ..repository.normalize import fill_instance_groups
from ..repository.specification import instances_of
from ..repository.validate import check_instance_groups, check_threads
from ..threads import share
from .plan import Shared

__all__ = ["may_be_resized", "resized", "without_instances"]


def may_be_resized(
    before: ModelConfig, wished: ModelConfig, serving: Mapping[int, ModelConfig], shared: Mapping[int, Shared]
) -> bool:
    """Whether versions that serve by what was wished `before` may go on so with the instances that are wished now"""
    return all(
        version in shared and _may_be_resized(before, wished, one, shared[version]) for version, one in serving.items()
    )


def _may_be_resized(before: ModelConfig, wished: ModelConfig, serving: ModelConfig, shared: Shared) -> bool:
    # what a model says itself, by code of its own, is not in its file
    if resized(serving, before) != serving or (_leaves_place_open(wished) and not _leaves_place_open(before)):
        return False
    new = resized(serving, wished)
    if not all(_is_plain(group) for group in (*serving.instance_group, *new.instance_group)):
        return False
    try:
        check_instance_groups(new)
        check_threads(new, shared.threads)
    except KushiError:
        # a load says so
        return False
    # more threads than others leave would be taken, or fewer than there are, where nothing else says how many
    cores = cores_for_all(serving)
    is_share = shared.threads == share(cores, shared.instances)
    is_right = not is_share or shared.threads == share(cores, instances_of(new))
    return instances_of(new) <= shared.most and is_right


def _leaves_place_open(config: ModelConfig) -> bool:
    return not config.instance_group or any(
        group.kind == ModelInstanceGroup.KIND_AUTO for group in config.instance_group
    )


def _is_plain(group: ModelInstanceGroup) -> bool:
    """Whether it says nothing but how many there are, on the CPU"""
    rest = ModelInstanceGroup()
    rest.CopyFrom(group)
    for field in ("name", "count", "kind"):
        rest.ClearField(field)
    return bool(rest == ModelInstanceGroup()) and group.kind == ModelInstanceGroup.KIND_CPU


def resized(serving: ModelConfig, wished: ModelConfig) -> ModelConfig:
    """The complete configuration of a version, with the instances that are wished"""
    config = ModelConfig()
    config.CopyFrom(serving)
    config.ClearField("instance_group")
    config.instance_group.extend(wished.instance_group)
    return fill_instance_groups(config)


def without_instances(config: ModelConfig) -> ModelConfig:
    """All else that it says"""
    rest = ModelConfig()
    rest.CopyFrom(config)
    rest.ClearField("instance_group")
    return rest
