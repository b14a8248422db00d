"""
What a version that serves may take over from another configuration without being opened again: in what order requests
wait, for how long, and which are executed together.
"""

from collections.abc import Iterable

from ..errors import KushiError
from ..repository.ensemble import is_ensemble
from ..repository.messages import ModelConfig
from ..repository.normalize import fill_defaults
from ..repository.specification import MAX_QUEUE_BYTES, scheduling_text
from ..repository.validate import check_model

__all__ = ["may_be_rescheduled", "rescheduled", "without_scheduling"]


def may_be_rescheduled(before: ModelConfig, wished: ModelConfig, serving: Iterable[ModelConfig]) -> bool:
    """Whether versions that serve by what was wished `before` may go on so by what is wished now"""
    if is_ensemble(before) or is_ensemble(wished):
        return False
    return all(_may_be_rescheduled(before, wished, one) for one in serving)


def _may_be_rescheduled(before: ModelConfig, wished: ModelConfig, serving: ModelConfig) -> bool:
    if wished.HasField("dynamic_batching"):
        fits = serving.HasField("dynamic_batching") and (before.HasField("dynamic_batching") or _is_filled_in(serving))
    else:
        fits = not before.HasField("dynamic_batching")
    in_order = serving.dynamic_batching.preserve_ordering
    # what a model says itself, by code of its own, is not in its file
    if not fits or rescheduled(serving, before) != serving or wished.dynamic_batching.preserve_ordering != in_order:
        return False
    try:
        new = rescheduled(serving, wished)
        check_model(new, new.name)
        scheduling_text(new)
    except KushiError:
        # a load says so
        return False
    return True


def _is_filled_in(serving: ModelConfig) -> bool:
    """Whether batches are as they are where nothing is said of them"""
    config = ModelConfig()
    config.CopyFrom(serving)
    config.ClearField("dynamic_batching")
    config.dynamic_batching.SetInParent()
    return bool(fill_defaults(config) == serving)


def rescheduled(serving: ModelConfig, wished: ModelConfig) -> ModelConfig:
    """The complete configuration of a version, with the scheduling that is wished"""
    config = ModelConfig()
    config.CopyFrom(serving)
    config.parameters.pop(MAX_QUEUE_BYTES, None)
    if MAX_QUEUE_BYTES in wished.parameters:
        config.parameters[MAX_QUEUE_BYTES].CopyFrom(wished.parameters[MAX_QUEUE_BYTES])
    if serving.HasField("dynamic_batching") and wished.HasField("dynamic_batching"):
        config.dynamic_batching.CopyFrom(wished.dynamic_batching)
    return fill_defaults(config)


def without_scheduling(config: ModelConfig) -> ModelConfig:
    """All else that it says"""
    rest = ModelConfig()
    rest.CopyFrom(config)
    rest.ClearField("dynamic_batching")
    rest.parameters.pop(MAX_QUEUE_BYTES, None)
    return rest
