"""
Which fields of config.pbtxt have an effect in this version. Every other field that is set is refused by its name:
a setting that is silently ignored is worse than one that is missing. What Triton ignores without a flag of the server
is ignored here as well, with a line in the log. Parameters are free: clients and models read their own.
"""

import logging
import re
from collections.abc import Iterator, Mapping
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
from .said_here import SAID_HERE
from .self_tests import SELF_TEST, SELF_TEST_TOLERANCE, check_can_be_tested

__all__ = [
    "ALTERNATIVES",
    "SAMPLES",
    "check_supported_fields",
    "own_parameters",
    "without_effect",
]

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
ALTERNATIVES, SAMPLES = f"{_OWN}alternatives", f"{_OWN}samples"
"""The forms that a model has, and what all of them are asked before one is served"""
_PARAMETERS = (
    ALTERNATIVES,
    CORES,
    f"{_OWN}inline",
    ISOLATE,
    f"{_OWN}max_queue_bytes",
    MONITOR,
    SAMPLES,
    SELF_TEST,
    SELF_TEST_TOLERANCE,
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
    check_can_be_tested(config, descriptor)
    _check_parameters(config, descriptor)
    for _, text in without_effect(config, descriptor):
        _LOG.warning("model '%s': %s", config.name, text)


def without_effect(config: ModelConfig, descriptor: Descriptor | None) -> Iterator[tuple[str, str]]:
    """The fields of a supported configuration that mean nothing here, with the reason"""
    for path in _beyond_of(config, descriptor):
        if field := _named(path, _WITHOUT_EFFECT):
            yield path, f"field '{path}' has no effect: {_WITHOUT_EFFECT[field]}"
        elif _names_no_file(config, path):
            yield path, f"field '{path}' has no effect: it names no file"
    ragged = _ragged_input(config, descriptor)
    if ragged is not None:
        path = f"input[{ragged}].allow_ragged_batch"
        yield path, f"field '{path}' has no effect: requests of one shape run together, or each alone"
    own = own_parameters(config, descriptor)
    for key in sorted(config.parameters):
        if text := _why_without_effect(key, own, descriptor):
            yield f"parameters[{key}]", f"parameter '{key}' {text}"
    for index, group in enumerate(config.instance_group):
        if group.rate_limiter.priority and not group.rate_limiter.resources:
            path = f"instance_group[{index}].rate_limiter.priority"
            yield path, f"field '{path}' has no effect without resources"


def _check_fields(config: ModelConfig, descriptor: Descriptor | None) -> None:
    refused, instead = [], []
    for path in _beyond_of(config, descriptor):
        if _named(path, _WITHOUT_EFFECT) or _names_no_file(config, path):
            continue
        if field := _named(path, _INSTEAD):
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


def _beyond_of(config: ModelConfig, descriptor: Descriptor | None) -> Iterator[str]:
    """What is neither supported for all models nor by this backend"""
    own = descriptor.fields if descriptor else ()
    return (path for path in _beyond(config, _SUPPORTED, "") if not _INDEX.sub("[]", path).startswith(own))


def _names_no_file(config: ModelConfig, path: str) -> bool:
    return path == "cc_model_filenames" and not any(map(all, config.cc_model_filenames.items()))


def _named(path: str, fields: Mapping[str, str]) -> str | None:
    """The one of `fields` that is at `path`, or around it"""
    plain = f"{_INDEX.sub('[]', path)}."
    return next((field for field in fields if plain.startswith(f"{field}.")), None)


def _check_ragged(config: ModelConfig, descriptor: Descriptor | None) -> None:
    """Requests of different shapes run together where a model is handed each by itself; others can only be alone"""
    ragged = _ragged_input(config, descriptor)
    if ragged is not None and descriptor and config.max_batch_size > 1 and config.HasField("dynamic_batching"):
        raise Unsupported(
            f"field 'input[{ragged}].allow_ragged_batch' is not supported by this version for backend "
            f"'{config.backend}', which executes requests of one shape together: without it those of other shapes are "
            "executed one after the other"
        )


def _ragged_input(config: ModelConfig, descriptor: Descriptor | None) -> int | None:
    """The first one that is stated for a model that is not handed each request by itself"""
    if descriptor and descriptor.apart:
        return None
    return next((index for index, tensor in enumerate(config.input) if tensor.allow_ragged_batch), None)


def _check_parameters(config: ModelConfig, descriptor: Descriptor | None) -> None:
    """Refuses what the backend knows and does not take"""
    for key in sorted(config.parameters):
        if why := descriptor and descriptor.refused.get(key):
            raise Unsupported(f"parameter '{key}' is not supported by this version: it {why}")


def own_parameters(config: ModelConfig, descriptor: Descriptor | None) -> frozenset[str]:
    """Those of Kushi that mean something for this model"""
    in_processes = is_isolated(config) or (descriptor is not None and is_in_processes(config, descriptor))
    return frozenset((*_PARAMETERS, *OF_PROCESSES) if in_processes else _PARAMETERS)


def _why_without_effect(key: str, own: frozenset[str], descriptor: Descriptor | None) -> str:
    """Of what is probably a mistake; "" of all others, which are the clients'"""
    if key in own or key in SAID_HERE or (descriptor and key in descriptor.parameters):
        return ""
    if key in OF_PROCESSES:
        return f"has no effect: it is for processes of a model's own, as '{ISOLATE}' has them"
    backends = () if not descriptor or descriptor.any_parameter else descriptor.parameters
    meant = _meant(key, own) if _NEARLY_OWN.match(key) else nearly(key, backends)
    if not meant and not key.startswith(_OWN):
        return ""
    instead = f", did you mean '{meant}'?" if meant else f", those of Kushi are {', '.join(sorted(own))}"
    return f"is not known here and has no effect{instead}"


def _meant(key: str, own: frozenset[str]) -> str | None:
    """That of ours which is written in another way, or nearly"""
    rest = _NEARLY_OWN.sub("", key)
    plain = f"{_OWN}{rest.lower()}"
    return plain if plain in own else nearly(f"{_OWN}{rest}", sorted(own))


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
