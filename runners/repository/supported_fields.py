"""
Which fields of config.pbtxt have an effect in this version. Every other field that is set is refused by its name:
a setting that is silently ignored is worse than one that is missing. What Triton ignores without a flag of the server
is ignored here as well, with a line in the log. Parameters are free: clients and models read their own.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from ..errors import Unsupported
from ..nearest import nearly
from ..version_labels import VERSIONS
from .cores import CORES, core_sets
from .descriptor import Descriptor
from .discovery import descriptor_of
from .ensemble import is_ensemble
from .isolation import ISOLATE, OF_PROCESSES, check_isolation, is_in_processes, is_isolated
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
    "input": _TENSOR | {"format": None, "optional": None, "allow_ragged_batch": None},
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
    "instance_group": dict.fromkeys(("name", "kind", "count", "gpus", "profile", "rate_limiter")),
    # pinned memory speeds up copies to a GPU; on CPU both of its values mean the same
    "optimization": {"input_pinned_memory": None, "output_pinned_memory": None},
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
_OF_PLANS = "it is for TensorRT plans"
_WITHOUT_EFFECT = {
    "model_operations": "libraries of operators are for ONNX models",
    "response_cache": "the server has no response cache",
    "optimization.cuda": _OF_PLANS,
    "optimization.eager_batching": _OF_PLANS,
    "optimization.execution_accelerators": "they are for ONNX models",
    "optimization.gather_kernel_buffer_threshold": _OF_PLANS,
    "optimization.graph": "levels are those of ONNX Runtime",
    "optimization.priority": _OF_PLANS,
}
"""Fields that mean something elsewhere alone: with a flag of Triton's, or with another backend"""
_INSTEAD = {
    "instance_group[].host_policy": f"the parameter '{CORES}' says on which cores instances run, as in '0-3;4-7'",
    "runtime": "code of one's own is for Python models; a network has to be exported to a file that needs none",
    "instance_group[].passive": "an instance that takes no requests would do nothing here, remove its group",
    "instance_group[].secondary_devices": "nothing is placed on NVDLA, on purpose; without it the model runs on the "
    "GPUs of its group",
}
"""Fields that are refused for good, and what to use in their place"""
_MAX_LEVELS = 1024
_INDEX = re.compile(r"\[\d+\]")
_OWN = "kushi."
_NEARLY_OWN = re.compile(r"kushi[._-]", re.IGNORECASE)
ALTERNATIVES, ALTERNATIVE, SAMPLES = f"{_OWN}alternatives", f"{_OWN}alternative", f"{_OWN}samples"
"""The forms that a model has, the one that is served, with the reason, and what all of them are asked before"""
_PARAMETERS = (
    ALTERNATIVE,
    ALTERNATIVES,
    CORES,
    f"{_OWN}inline",
    ISOLATE,
    f"{_OWN}max_queue_bytes",
    MONITOR,
    SAMPLES,
    VERSIONS,
)


def check_supported_fields(config: ModelConfig) -> None:
    """Raises for what this version does not support, the backend before all others, then all fields together"""
    descriptor = descriptor_of(config.backend) if config.backend else None
    _check_fields(config, descriptor)
    _check_ragged(config, descriptor)
    levels = config.dynamic_batching.priority_levels
    if levels > _MAX_LEVELS:
        raise Unsupported(
            f"field 'dynamic_batching.priority_levels' is {levels}, at most {_MAX_LEVELS} are supported by this version"
        )
    if descriptor or is_ensemble(config):
        check_isolation(config, descriptor)
    if core_sets(config) and is_ensemble(config):
        raise Unsupported(
            f"parameter '{CORES}' of model '{config.name}': an ensemble executes nothing by itself, state it for the "
            "models of its steps"
        )
    _check_parameters(config, descriptor)
    for index, group in enumerate(config.instance_group):
        if group.rate_limiter.priority and not group.rate_limiter.resources:
            _LOG.warning(
                "model '%s': field 'instance_group[%d].rate_limiter.priority' has no effect without resources",
                config.name,
                index,
            )


def _check_fields(config: ModelConfig, descriptor: Descriptor | None) -> None:
    refused, instead = [], []
    for path in _beyond(config, _SUPPORTED, ""):
        if descriptor and _INDEX.sub("[]", path).startswith(descriptor.fields):
            continue
        if field := _named(path, _WITHOUT_EFFECT):
            _LOG.warning("model '%s': field '%s' has no effect: %s", config.name, path, _WITHOUT_EFFECT[field])
        elif path == "cc_model_filenames" and not any(map(all, config.cc_model_filenames.items())):
            _LOG.warning("model '%s': field '%s' has no effect: it names no file", config.name, path)
        elif field := _named(path, _INSTEAD):
            instead.append(f"field '{path}' is not supported by this version: {_INSTEAD[field]}")
        else:
            refused.append(path)
    if len(refused) == 1:
        (path,) = refused
        instead.append(f"field '{path}' is not supported by this version, remove it or set it to its default")
    elif refused:
        named = ", ".join(f"'{path}'" for path in refused)
        instead.append(f"fields {named} are not supported by this version, remove them or set them to their defaults")
    if instead:
        raise Unsupported("; ".join(instead))


def _named(path: str, fields: Mapping[str, str]) -> str | None:
    """The one of `fields` that is at `path`, or around it"""
    plain = f"{_INDEX.sub('[]', path)}."
    return next((field for field in fields if plain.startswith(f"{field}.")), None)


def _check_ragged(config: ModelConfig, descriptor: Descriptor | None) -> None:
    """Requests of different shapes run together where a model is handed each by itself; others can only be alone"""
    ragged = next((index for index, tensor in enumerate(config.input) if tensor.allow_ragged_batch), None)
    if ragged is None or (descriptor and descriptor.apart):
        return
    if descriptor and config.max_batch_size > 1 and config.HasField("dynamic_batching"):
        raise Unsupported(
            f"field 'input[{ragged}].allow_ragged_batch' is not supported by this version for backend "
            f"'{config.backend}', which executes requests of one shape together: without it those of other shapes are "
            "executed one after the other"
        )
    _LOG.warning(
        "model '%s': field 'input[%d].allow_ragged_batch' has no effect: requests of one shape run together, or each "
        "alone",
        *(config.name, ragged),
    )


def _check_parameters(config: ModelConfig, descriptor: Descriptor | None) -> None:
    """Refuses what the backend knows and does not take; warns of what is probably a mistake"""
    backends = () if not descriptor or descriptor.any_parameter else descriptor.parameters
    in_processes = is_isolated(config) or (descriptor is not None and is_in_processes(config, descriptor))
    own = (*_PARAMETERS, *OF_PROCESSES) if in_processes else _PARAMETERS
    known = (*(descriptor.parameters if descriptor else ()), *own)
    for key in sorted(config.parameters):
        if why := descriptor and descriptor.refused.get(key):
            raise Unsupported(f"parameter '{key}' is not supported by this version: it {why}")
        if key in known:
            continue
        if key in OF_PROCESSES:
            _LOG.warning(
                "model '%s': parameter '%s' has no effect: it is for processes of a model's own, as '%s' has them",
                *(config.name, key, ISOLATE),
            )
            continue
        meant = _meant(key, own) if _NEARLY_OWN.match(key) else nearly(key, backends)
        if meant or key.startswith(_OWN):
            instead = f", did you mean '{meant}'?" if meant else f", those of Kushi are {', '.join(own)}"
            _LOG.warning("model '%s': parameter '%s' is not known here and has no effect%s", config.name, key, instead)


def _meant(key: str, own: Sequence[str]) -> str | None:
    """That of ours which is written in another way, or nearly"""
    rest = _NEARLY_OWN.sub("", key)
    # what Kushi says by itself is nobody's to say
    ours = [name for name in own if name != ALTERNATIVE]
    plain = f"{_OWN}{rest.lower()}"
    return plain if plain in ours else nearly(f"{_OWN}{rest}", ours)


def _beyond(message: Message, supported: dict[str, Any] | None, prefix: str) -> Iterator[str]:
    """The set fields of `message` that are not in the tree `supported`, each as a whole"""
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
            if known:
                yield from deeper
            # choosing a member of a oneof is a statement even when the member is empty
            elif deeper or field.containing_oneof:
                yield path
