"""The specification: all that the native core is told about one version of a model, in one frozen value"""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel, ConfigDict

from ..errors import ConfigInvalid
from ..integers import INT64_MAX, integer
from .config_json import to_plain
from .discovery import descriptors
from .messages import ModelConfig, ModelInput, ModelOutput, ModelQueuePolicy
from .model_metrics import first_response_buckets, monitored_outputs, tags
from .rates import RateSpecification, rates_of_instances
from .tensors import protocol_type

__all__ = [
    "MAX_QUEUE_BYTES",
    "Specification",
    "config_text",
    "instances_of",
    "parameter",
    "scheduling_text",
    "specify",
    "unhurried",
]

_MAX_REQUESTS = 4096
MAX_QUEUE_BYTES = "kushi.max_queue_bytes"
_MAX_BYTES = 256 * 1024 * 1024


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InputSpecification(_Frozen):
    """One input; `dims` without the batch dimension, `reshape` what the model itself sees"""

    name: str
    datatype: str
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None
    optional: bool


class OutputSpecification(_Frozen):
    """One output; `dims` without the batch dimension, `reshape` what the model itself gives, `labels` its classes"""

    name: str
    datatype: str
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None
    labels: tuple[str, ...]


class BatchingSpecification(_Frozen):
    """The dynamic batcher"""

    preferred_batch_sizes: tuple[int, ...]
    max_queue_delay_us: int
    preserve_ordering: bool


class QueuePolicySpecification(_Frozen):
    """The rules of one priority level; `max_requests` 0 is no bound in number"""

    max_requests: int
    default_timeout_us: int
    allow_timeout_override: bool
    timeout_action: Literal["REJECT", "DELAY"]


class QueueSpecification(_Frozen):
    """
    The queue: its bound in bytes, and its levels, of which the first is served first. `ragged`: by input, whether
    requests of different shapes run together
    """

    max_bytes: int
    levels: tuple[QueuePolicySpecification, ...]
    default_level: int
    ragged: tuple[bool, ...]


class MetricsSpecification(_Frozen):
    """What its metrics have beside what all have; `monitored` are positions of outputs, `tags` labels"""

    first_response_buckets: tuple[float, ...] | None
    monitored: tuple[int, ...]
    tags: tuple[tuple[str, str], ...]


class Specification(_Frozen):
    """One version of a model; `cores` and `rates` are of each instance, or empty where nothing is stated"""

    name: str
    version: int
    platform: str
    backend: str
    max_batch_size: int
    inputs: tuple[InputSpecification, ...]
    outputs: tuple[OutputSpecification, ...]
    batching: BatchingSpecification | None
    queue: QueueSpecification
    instances: int
    cores: tuple[tuple[int, ...], ...]
    rates: tuple[RateSpecification, ...]
    inline: bool
    decoupled: bool
    config_json: str
    config_message: tuple[int, ...]
    load_seconds: float
    metrics: MetricsSpecification


def specify(
    config: ModelConfig,
    *,
    version: int,
    scalars: Iterable[str],
    inline: bool,
    load_seconds: float,
    cores: Sequence[tuple[int, ...]] = (),
    labels: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Specification:
    """
    One version from its complete, checked configuration; `scalars` are the tensors of rank 0 in the model, `labels` the
    names of the classes of outputs
    """
    rank_zero = frozenset(scalars)
    return Specification(
        name=config.name,
        version=version,
        # a backend that has no platforms of its own is one
        platform=config.platform or config.backend,
        backend=config.backend,
        max_batch_size=config.max_batch_size,
        inputs=tuple(
            InputSpecification(
                name=tensor.name,
                datatype=protocol_type(tensor.data_type),
                dims=tuple(tensor.dims),
                reshape=_reshape(tensor, rank_zero),
                optional=tensor.optional,
            )
            for tensor in config.input
        ),
        outputs=tuple(
            OutputSpecification(
                name=tensor.name,
                datatype=protocol_type(tensor.data_type),
                dims=tuple(tensor.dims),
                reshape=_reshape(tensor, rank_zero),
                labels=labels.get(tensor.name, ()),
            )
            for tensor in config.output
        ),
        batching=_batching(config),
        queue=_queue(config),
        instances=max(1, instances_of(config)),
        cores=tuple(cores),
        rates=rates_of_instances(config),
        inline=inline and _inline_wanted(config),
        decoupled=config.model_transaction_policy.decoupled,
        config_json=config_text(config),
        config_message=tuple(config.SerializeToString()),
        load_seconds=load_seconds,
        metrics=MetricsSpecification(
            first_response_buckets=first_response_buckets(config),
            monitored=monitored_outputs(config),
            tags=tags(config),
        ),
    )


def scheduling_text(config: ModelConfig) -> str:
    """What of it may become another while a version serves"""
    batching = _batching(config)
    plain = {"batching": batching and batching.model_dump(mode="json"), "queue": _queue(config).model_dump(mode="json")}
    return json.dumps(plain)


def unhurried(specification: Specification) -> dict[str, object]:
    """What changes of it where nothing waits for company, and no request is refused or too late"""
    level = QueuePolicySpecification(
        max_requests=0, default_timeout_us=0, allow_timeout_override=False, timeout_action="REJECT"
    )
    batching = specification.batching and specification.batching.model_copy(update={"max_queue_delay_us": 0})
    queue = specification.queue.model_copy(update={"levels": (level,), "default_level": 1})
    return {"batching": batching, "queue": queue}


def config_text(config: ModelConfig) -> str:
    """The body of the answer to whoever asks for it"""
    return json.dumps(to_plain(config), separators=(",", ":"))


def instances_of(config: ModelConfig) -> int:
    """How many instances all groups have together: `count` on each GPU of a group that has some"""
    return sum(group.count * max(1, len(group.gpus)) for group in config.instance_group)


def parameter(
    config: ModelConfig, key: str, default: int, allowed: Sequence[int] | None = None, *, most: int = INT64_MAX
) -> int:
    """The integer parameter `key`, or `default` when it is absent; negative only where `allowed` says so"""
    if key not in config.parameters:
        return default
    text = config.parameters[key].string_value
    value = integer(text)
    if allowed:
        expected, fits = f"one of {', '.join(map(str, allowed))}", value in allowed
    else:
        expected, fits = f"a non-negative integer of at most {most}", value is not None and 0 <= value <= most
    if value is None or not fits:
        raise ConfigInvalid(f"parameter '{key}' of model '{config.name}': expected {expected}, got '{text}'")
    return value


def _reshape(tensor: ModelInput | ModelOutput, rank_zero: frozenset[str]) -> tuple[int, ...] | None:
    if tensor.HasField("reshape"):
        return tuple(tensor.reshape.shape)
    return () if tensor.name in rank_zero else None


def _batching(config: ModelConfig) -> BatchingSpecification | None:
    if not config.HasField("dynamic_batching"):
        return None
    batching = config.dynamic_batching
    return BatchingSpecification(
        preferred_batch_sizes=tuple(sorted(set(batching.preferred_batch_size))),
        max_queue_delay_us=batching.max_queue_delay_microseconds,
        preserve_ordering=batching.preserve_ordering,
    )


def _queue(config: ModelConfig) -> QueueSpecification:
    max_bytes = parameter(config, MAX_QUEUE_BYTES, _MAX_BYTES)
    if max_bytes == 0:
        raise ConfigInvalid(f"parameter '{MAX_QUEUE_BYTES}' of model '{config.name}': expected at least 1, got 0")
    batching = config.dynamic_batching
    own = dict(batching.priority_queue_policy) if batching.priority_levels else {}
    default = batching.default_queue_policy if batching.HasField("default_queue_policy") else None
    return QueueSpecification(
        max_bytes=max_bytes,
        levels=tuple(_level(own.get(level, default)) for level in range(1, max(1, batching.priority_levels) + 1)),
        default_level=max(1, batching.default_priority_level) if batching.priority_levels else 1,
        ragged=_ragged(config),
    )


def _ragged(config: ModelConfig) -> tuple[bool, ...]:
    """Only where the model is handed each request by itself: all others have one tensor for all"""
    descriptor = descriptors().get(config.backend)
    if not descriptor or not descriptor.apart:
        return ()
    return tuple(tensor.allow_ragged_batch for tensor in config.input)


def _level(policy: ModelQueuePolicy | None) -> QueuePolicySpecification:
    stated = policy or ModelQueuePolicy(max_queue_size=_MAX_REQUESTS)
    return QueuePolicySpecification(
        max_requests=stated.max_queue_size,
        default_timeout_us=stated.default_timeout_microseconds,
        allow_timeout_override=stated.allow_timeout_override,
        timeout_action="DELAY" if stated.timeout_action == ModelQueuePolicy.DELAY else "REJECT",
    )


def _inline_wanted(config: ModelConfig) -> bool:
    wanted = config.parameters["kushi.inline"].string_value if "kushi.inline" in config.parameters else "auto"
    if wanted not in {"auto", "never"}:
        raise ConfigInvalid(
            f"parameter 'kushi.inline' of model '{config.name}': expected 'auto' or 'never', got '{wanted}'"
        )
    return wanted == "auto"
