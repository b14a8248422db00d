"""
Which fields of config.pbtxt have an effect in this version. Every other field that is set is refused by its name:
a setting that is silently ignored is worse than one that is missing. What Triton ignores without a flag of the server
is ignored here as well, with a line in the log. Parameters are free: clients and models read their own.
"""

import logging
import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from ..errors import Unsupported
from ..nearest import nearly
from .descriptor import Descriptor
from .discovery import descriptor_of
from .ensemble import is_ensemble
from .isolation import ISOLATE, OF_PROCESSES, check_isolation, is_isolated
from .messages import ModelConfig
from .model_metrics import MONITOR

__all__ = ["check_supported_fields"]

_LOG = logging.getLogger(__name__)
_TENSOR = dict.fromkeys(("name", "data_type", "dims", "reshape"))
_SUPPORTED: dict[str, Any] = {
    "name": None,
    "platform": None,
    "backend": None,
    "version_policy": None,
    "max_batch_size": None,
    "input": _TENSOR | {"format": None, "optional": None},
    "output": _TENSOR | {"label_filename": None},
    "default_model_filename": None,
    "dynamic_batching": {
        "preferred_batch_size": None,
        "max_queue_delay_microseconds": None,
        "preserve_ordering": None,
        "priority_levels": None,
        "default_priority_level": None,
        "default_queue_policy": None,
        "priority_queue_policy": None,
    },
    "instance_group": dict.fromkeys(("name", "kind", "count", "gpus", "profile")),
    # pinned memory speeds up copies to a GPU; on CPU both of its values mean the same
    "optimization": {"graph": None, "input_pinned_memory": None, "output_pinned_memory": None},
    "parameters": None,
    "ensemble_scheduling": {
        "step": dict.fromkeys(("model_name", "model_version", "input_map", "output_map")),
        "max_inflight_requests": None,
    },
    "metric_tags": None,
    "model_metrics": {
        "metric_control": {"metric_identifier": {"family": None}, "histogram_options": {"buckets": None}},
    },
    "model_warmup": {"name": None, "batch_size": None, "inputs": None, "count": None},
}
_WITHOUT_EFFECT = {
    "response_cache": "the server has no response cache",
    "instance_group[].rate_limiter": "the server does not limit rates",
}
"""Fields that mean something with a flag of Triton's alone, and what is off"""
_MAX_LEVELS = 1024
_INDEX = re.compile(r"\[\d+\]")
_OWN = "kushi."
_PARAMETERS = (f"{_OWN}inline", ISOLATE, f"{_OWN}max_queue_bytes", MONITOR)


def check_supported_fields(config: ModelConfig) -> None:
    """Raises for the first thing in `config` that this version does not support, the backend before all others"""
    descriptor = descriptor_of(config.backend) if config.backend else None
    for path in _beyond(config, _SUPPORTED, ""):
        if descriptor and path.startswith(descriptor.fields):
            continue
        if why := _without_effect(path):
            _LOG.warning("model '%s': field '%s' has no effect: %s", config.name, path, why)
            continue
        raise Unsupported(f"field '{path}' is not supported by this version, remove it or set it to its default")
    levels = config.dynamic_batching.priority_levels
    if levels > _MAX_LEVELS:
        raise Unsupported(
            f"field 'dynamic_batching.priority_levels' is {levels}, at most {_MAX_LEVELS} are supported by this version"
        )
    if descriptor or is_ensemble(config):
        check_isolation(config, descriptor)
    _check_parameters(config, descriptor)


def _without_effect(path: str) -> str | None:
    plain = _INDEX.sub("[]", path)
    return next((why for field, why in _WITHOUT_EFFECT.items() if f"{plain}.".startswith(f"{field}.")), None)


def _check_parameters(config: ModelConfig, descriptor: Descriptor | None) -> None:
    """Refuses what the backend knows and does not take; warns of what is probably a mistake"""
    backends = () if not descriptor or descriptor.any_parameter else descriptor.parameters
    own = (*_PARAMETERS, *OF_PROCESSES) if is_isolated(config) else _PARAMETERS
    known = (*(descriptor.parameters if descriptor else ()), *own)
    for key in sorted(config.parameters):
        if why := descriptor and descriptor.refused.get(key):
            raise Unsupported(f"parameter '{key}' is not supported by this version: it {why}")
        if key in known:
            continue
        meant = nearly(key, own if key.startswith(_OWN) else backends)
        if meant or key.startswith(_OWN):
            instead = f", did you mean '{meant}'?" if meant else f", those of Kushi are {', '.join(own)}"
            _LOG.warning("model '%s': parameter '%s' is not known here and has no effect%s", config.name, key, instead)


def _beyond(message: Message, supported: dict[str, Any] | None, prefix: str) -> Iterator[str]:
    """The set fields of `message` that are not in the tree `supported`, the deepest name that is set first"""
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        known = supported is not None and field.name in supported
        inside = supported[field.name] if supported is not None and known else None
        if known and inside is None:
            continue
        if field.is_repeated:
            if not known:
                yield path
            else:
                for index, item in enumerate(value):
                    yield from _beyond(item, inside, f"{path}[{index}].")
        elif field.message_type is None:
            yield path
        else:
            deeper = list(_beyond(value, inside, f"{path}."))
            # choosing a member of a oneof is a statement even when the member is empty
            yield from deeper if deeper or known or field.containing_oneof is None else [path]
