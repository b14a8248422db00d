"""
The steps of an ensemble: `ensemble_scheduling` of config.pbtxt, checked with Triton's messages; by itself first, and
against the configurations of its composing models once they are loaded.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..errors import ConfigInvalid
from .messages import DataType, ModelConfig, ModelEnsembling, ModelInput, ModelOutput
from .tensors import shape_text
from .version_routes import routes_of

__all__ = [
    "LATEST",
    "MOST_IN_A_ROW",
    "PLATFORM",
    "check_composing",
    "check_steps",
    "composing",
    "is_ensemble",
    "steps_json",
    "too_deep",
    "with_policy",
]

PLATFORM = "ensemble"
LATEST = -1
"""What `model_version` of a step says for the latest one"""
_ANY = -1
MOST_IN_A_ROW = 32
"""Of models that ask one another, as for requests (`DEEPEST` in native/crates/core)"""
_MOST_REASON = 4096


def is_ensemble(config: ModelConfig) -> bool:
    """Whether models of the repository make its answers"""
    return config.platform == PLATFORM


def composing(config: ModelConfig) -> list[str]:
    """The models of its steps, each once"""
    return list(dict.fromkeys(step.model_name for step in config.ensemble_scheduling.step))


def steps_json(config: ModelConfig) -> str:
    """The steps as the native core takes them"""
    scheduling = config.ensemble_scheduling
    return json.dumps(
        [
            {
                "model": step.model_name,
                "version": None if step.model_version == LATEST else step.model_version,
                "inputs": dict(step.input_map),
                "outputs": dict(step.output_map),
                "max_inflight_requests": scheduling.max_inflight_requests,
            }
            for step in scheduling.step
        ]
    )


def check_steps(config: ModelConfig) -> None:
    """The graph by itself, for any model: one that is no ensemble has no steps"""
    name, scheduling = config.name, config.ensemble_scheduling
    if not is_ensemble(config):
        if config.HasField("ensemble_scheduling"):
            raise ConfigInvalid(
                f"ensemble scheduling cannot be set for model '{name}' whose platform is not {PLATFORM}"
            )
        return
    if not config.HasField("ensemble_scheduling"):
        raise ConfigInvalid(f"ensemble scheduling must be set for ensemble {name} whose platform is {PLATFORM}")
    if config.instance_group:
        raise ConfigInvalid(f"instance group should not be specified for ensemble '{name}'")
    if config.HasField("optimization"):
        raise ConfigInvalid(f"optimization should not be specified for ensemble '{name}'")
    if config.model_warmup:
        raise ConfigInvalid(f"model_warmup can not be specified for ensemble '{name}'")
    if not scheduling.step:
        raise ConfigInvalid(f"must specify 'step' for ensemble '{name}'")
    for index, step in enumerate(scheduling.step):
        _check_step(f"step {index} of ensemble '{name}'", step)
    _check_flow(config)


def _check_step(subject: str, step: ModelEnsembling.Step) -> None:
    for field in ("model_name", "input_map", "output_map"):
        if not getattr(step, field):
            raise ConfigInvalid(f"must specify '{field}' in {subject}")
    if step.model_version < 1 and step.model_version != LATEST:
        raise ConfigInvalid(
            f"{subject} has model_version {step.model_version}, expected a version from 1, or {LATEST} for the latest"
        )


def _check_flow(config: ModelConfig) -> None:
    """Each tensor is made once, from the inputs, and is of use"""
    name, steps = config.name, config.ensemble_scheduling.step
    inputs = [tensor.name for tensor in config.input]
    outputs = dict.fromkeys(tensor.name for tensor in config.output)
    makers = _makers(config)
    taken = {tensor for step in steps for tensor in step.input_map.values()}
    unused = [("input", tensor) for tensor in inputs if tensor not in taken]
    unused += [("output", tensor) for tensor in outputs if tensor not in makers and tensor not in taken]
    for role, tensor in unused:
        raise ConfigInvalid(f"ensemble {role} '{tensor}' for ensemble '{name}' is not used")
    ready = _ready(inputs, steps)
    for tensor in outputs:
        if tensor not in ready:
            missing = _unconnected(tensor, makers, ready)
            why = f": at least one of its depending tensors, '{missing}', is not connected" if missing else ""
            raise ConfigInvalid(f"output '{tensor}' for ensemble '{name}' is not written{why}")
    for tensor in [*makers, *sorted(taken)]:
        if tensor not in outputs and (tensor not in ready or tensor not in taken):
            raise ConfigInvalid(f"ensemble tensor '{tensor}' is unused in ensemble '{name}'")


def _makers(config: ModelConfig) -> dict[str, ModelEnsembling.Step]:
    """The step that makes each tensor"""
    makers: dict[str, ModelEnsembling.Step] = {}
    inputs = {tensor.name for tensor in config.input}
    for index, step in enumerate(config.ensemble_scheduling.step):
        for tensor in step.output_map.values():
            if tensor in makers or tensor in inputs:
                raise ConfigInvalid(
                    f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble '{config.name}' "
                    f"step {index}"
                )
            makers[tensor] = step
    return makers


def _ready(inputs: Iterable[str], steps: Sequence[ModelEnsembling.Step]) -> set[str]:
    """The tensors that are made from the inputs of the ensemble"""
    missing = [set(step.input_map.values()) for step in steps]
    takers: dict[str, list[int]] = {}
    for index, tensors in enumerate(missing):
        for tensor in tensors:
            takers.setdefault(tensor, []).append(index)
    ready: set[str] = set()
    made = [*inputs]
    while made:
        tensor = made.pop()
        if tensor in ready:
            continue
        ready.add(tensor)
        for index in takers.get(tensor, ()):
            missing[index].discard(tensor)
            if not missing[index]:
                made.extend(steps[index].output_map.values())
    return ready


def _unconnected(tensor: str, makers: Mapping[str, ModelEnsembling.Step], ready: set[str]) -> str:
    """What a tensor waits for in the end; "" in a ring"""
    seen: set[str] = set()
    while tensor in makers:
        if tensor in seen:
            return ""
        seen.add(tensor)
        tensor = next(one for one in sorted(makers[tensor].input_map.values()) if one not in ready)
    return tensor


@dataclass(frozen=True)
class _Inferred:
    """What a model says of a tensor of the ensemble"""

    model: str
    datatype: int
    dims: tuple[int, ...]
    batches: bool

    @property
    def whole(self) -> tuple[int, ...]:
        """With the dimension of the batch"""
        return (_ANY, *self.dims) if self.batches else self.dims


def check_composing(
    config: ModelConfig,
    models: Mapping[str, Mapping[int, ModelConfig]],
    failures: Mapping[str, Exception],
    *,
    as_written: bool = False,
) -> list[ModelConfig]:
    """
    The ensemble against the versions of its models that are loaded; `failures` are why others are not. Answers the
    models of its steps.

    as_written: the models are not loaded. What a configuration does not state, its model file will say.
    """
    name = config.name
    of_steps = []
    stated: dict[tuple[str, int], _Stated] = {}
    tensors = {
        tensor.name: _of_ensemble(tensor, config) for tensors in (config.input, config.output) for tensor in tensors
    }
    for step in config.ensemble_scheduling.step:
        versions = models.get(step.model_name)
        if not versions:
            why = failures.get(step.model_name)
            more = f". Model '{step.model_name}' loading failed with error: {_cut(str(why))}" if why else ""
            raise ConfigInvalid(f"ensemble '{name}' depends on '{step.model_name}' which has no loaded version{more}")
        version = _usual(versions) if step.model_version == LATEST else step.model_version
        if version not in versions:
            raise ConfigInvalid(
                f"ensemble '{name}' depends on '{step.model_name}' whose required version {version} is not loaded."
            )
        model = versions[version]
        # a model without batches takes each request as it is
        if 0 < model.max_batch_size < config.max_batch_size:
            raise ConfigInvalid(
                f"ensemble {name} allows maximum batch size {config.max_batch_size}, but it contains model "
                f"{model.name} which only allows maximum batch size to be {model.max_batch_size}"
            )
        # once for all steps of a model: both may be thousands
        if (step.model_name, version) not in stated:
            stated[step.model_name, version] = _stated(model)
        for tensor, of_step in _mapped(config, step, stated[step.model_name, version], as_written=as_written):
            known = tensors.setdefault(tensor, of_step)
            _check_consistent(f"in ensemble {name}, ensemble tensor {tensor}: ", known, of_step)
        of_steps.append(model)
    _check_depth(config, models)
    return of_steps


def _usual(versions: Mapping[int, ModelConfig]) -> int:
    """The version that a request without one meets, or one of those like it"""
    latest = max(versions)
    routes = routes_of(versions[latest])
    shares = routes.shares() if routes else {}
    return max(shares, key=lambda version: shares[version], default=latest)


def _cut(reason: str) -> str:
    """That of an ensemble has those of all below it, the first cause last"""
    return reason if len(reason) <= _MOST_REASON else f"{reason[: _MOST_REASON // 4]} … {reason[-_MOST_REASON // 2 :]}"


def _check_depth(config: ModelConfig, models: Mapping[str, Mapping[int, ModelConfig]]) -> None:
    below, depth = {*composing(config)}, 0
    while below and depth <= MOST_IN_A_ROW:
        depth += 1
        versions = [one for name in below for one in models.get(name, {}).values() if is_ensemble(one)]
        below = {step for one in versions for step in composing(one)}
    if depth > MOST_IN_A_ROW:
        raise too_deep(config.name)


def too_deep(name: str) -> ConfigInvalid:
    """Its requests would all be refused"""
    return ConfigInvalid(
        f"ensemble '{name}' is too deep: no more than {MOST_IN_A_ROW} models may ask one another in a row"
    )


def with_policy(written: ModelConfig, of_steps: Iterable[ModelConfig]) -> ModelConfig:
    """An ensemble is decoupled where the model of a step is"""
    config = ModelConfig()
    config.CopyFrom(written)
    config.model_transaction_policy.decoupled = any(model.model_transaction_policy.decoupled for model in of_steps)
    return config


@dataclass(frozen=True)
class _Stated:
    """The tensors of a model, as whoever asks it sees them"""

    model: str
    inputs: Mapping[str, _Inferred]
    outputs: Mapping[str, _Inferred]
    required: Mapping[str, None]
    """The inputs that are not optional, in their order"""


def _stated(model: ModelConfig) -> _Stated:
    return _Stated(
        model.name,
        inputs={tensor.name: _of_step(tensor, model) for tensor in model.input},
        outputs={tensor.name: _of_step(tensor, model) for tensor in model.output},
        required=dict.fromkeys(tensor.name for tensor in model.input if not tensor.optional),
    )


def _mapped(
    config: ModelConfig, step: ModelEnsembling.Step, model: _Stated, *, as_written: bool
) -> Iterator[tuple[str, _Inferred]]:
    if as_written and not (model.inputs and model.outputs):
        return
    prefix = f"in ensemble {config.name}, "
    for key, tensor in sorted(step.input_map.items()):
        if key not in model.inputs:
            raise ConfigInvalid(
                f"{prefix}ensemble tensor {tensor} is mapping to non-existing input {key} in model {model.model}"
            )
        yield tensor, model.inputs[key]
    # what is mapped is looked at, and not all that might be
    if sum(key in model.required for key in step.input_map) < len(model.required):
        key = next(key for key in model.required if key not in step.input_map)
        raise ConfigInvalid(f"{prefix}input {key} in model {model.model} is not mapped to any ensemble tensors")
    for key, tensor in sorted(step.output_map.items()):
        if key not in model.outputs:
            raise ConfigInvalid(
                f"{prefix}ensemble tensor {tensor} is mapped from non-existing output {key} in model {model.model}"
            )
        yield tensor, model.outputs[key]


def _of_ensemble(tensor: ModelInput | ModelOutput, config: ModelConfig) -> _Inferred:
    """As its steps see it: what is reshaped is so before the first of them and behind the last"""
    dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
    return _Inferred(config.name, tensor.data_type, tuple(dims), config.max_batch_size > 0)


def _of_step(tensor: ModelInput | ModelOutput, config: ModelConfig) -> _Inferred:
    """As whoever asks the model sees it"""
    return _Inferred(config.name, tensor.data_type, tuple(tensor.dims), config.max_batch_size > 0)


def _check_consistent(prefix: str, one: _Inferred, other: _Inferred) -> None:
    if one.datatype != other.datatype:
        what, first, second = "data type", DataType.Name(one.datatype), DataType.Name(other.datatype)
    elif not _fits(one.dims, other.dims) and not (one.batches != other.batches and _fits(one.whole, other.whole)):
        what, first, second = "shape", shape_text(one.whole), shape_text(other.whole)
    else:
        return
    raise ConfigInvalid(
        f"{prefix}inconsistent {what}: {first} is inferred from model {one.model} while {second} is inferred from "
        f"model {other.model}"
    )


def _fits(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(a == b or _ANY in {a, b} for a, b in zip(one, other, strict=True))
