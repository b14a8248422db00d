"""The rules of Triton's model configuration, with its messages, for the fields that are honoured here"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from math import prod

from ..errors import ConfigInvalid, Unsupported
from ..integers import MAX_THREADS
from .discovery import descriptor_of, descriptors
from .ensemble import PLATFORM, check_steps, is_ensemble
from .messages import DataType, ModelConfig, ModelInput, ModelInstanceGroup, ModelOutput, ModelQueuePolicy
from .rates import check_resources
from .specification import instances_of

__all__ = ["check_instance_groups", "check_model", "check_outputs", "check_tensors", "check_threads"]

_ANY = -1
_MAX_INSTANCES = 1024
_MAX_DIMS = 1024
"""Of a tensor: no engine has more than some dozens, and the products of many have no end"""
_MAX_THREADS_OF_ALL = 4 * MAX_THREADS


def check_model(config: ModelConfig, directory: str) -> None:
    """The configuration as a whole, before the model file is opened"""
    name = config.name
    check_steps(config)
    if not config.backend and not is_ensemble(config):
        instead = f', it is a backend: say backend: "{config.platform}"' if config.platform in descriptors() else ""
        raise ConfigInvalid(f"unexpected platform type '{config.platform}' for {name}{instead}")
    platforms = descriptor_of(config.backend).platforms if config.backend else (PLATFORM,)
    if config.platform not in platforms:
        raise ConfigInvalid(f"unexpected 'platform' and 'backend' pair, got:{config.platform}, {config.backend}")
    if config.max_batch_size < 0:
        raise ConfigInvalid(f"'max_batch_size' must be non-negative value for {name}")
    for index, group in enumerate(config.instance_group):
        if group.count < 0:
            raise ConfigInvalid(
                f"field 'instance_group[{index}].count' is {group.count}, expected 1 or more, or 0 for the default"
            )
    check_resources(config)
    _check_batching(config)
    if name != directory:
        raise ConfigInvalid(
            f"unexpected directory name '{directory}' for model '{name}', directory name must equal model name: leave "
            "'name' out of the configuration, or rename the directory"
        )


def _check_batching(config: ModelConfig) -> None:
    name, batching = config.name, config.dynamic_batching
    for size in batching.preferred_batch_size:
        if size <= 0:
            raise ConfigInvalid(f"dynamic batching preferred size must be positive for {name}")
        if size > config.max_batch_size:
            raise ConfigInvalid(f"dynamic batching preferred size must be <= max batch size for {name}")
    levels = batching.priority_levels
    if levels:
        if not 1 <= batching.default_priority_level <= levels:
            raise ConfigInvalid(f"default priority level must be in range [1, {levels}] for {name}")
        if any(not 1 <= level <= levels for level in batching.priority_queue_policy):
            raise ConfigInvalid(f"priority queue policy must have priority level in range [1, {levels}] for {name}")
    if batching.preserve_ordering:
        if levels > 1:
            raise ConfigInvalid(f"Only one priority level is allowed when 'preserve_ordering' is true for {name}")
        if any(map(_delays, (batching.default_queue_policy, *batching.priority_queue_policy.values()))):
            raise ConfigInvalid(
                f"Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for {name}"
            )


def _delays(policy: ModelQueuePolicy) -> bool:
    return policy.default_timeout_microseconds != 0 and policy.timeout_action == ModelQueuePolicy.DELAY


def check_instance_groups(
    config: ModelConfig, gpus: Sequence[int] = (), why_none: str = "", *, instead_of_kind_model: str = ""
) -> None:
    """
    The instance groups after `fill_instance_groups`; `gpus` are those that the backend can use, and `why_none` is why
    there is none. Where models cannot choose their devices by themselves, `instead_of_kind_model` says what to use
    """
    reason = f": {why_none}" if why_none else ""
    if (instances := instances_of(config)) > _MAX_INSTANCES:
        raise Unsupported(
            f"model '{config.name}' has {instances} instances, at most {_MAX_INSTANCES} are supported by this version"
        )
    descriptor = descriptors().get(config.backend)
    has = descriptor.fields if descriptor else ()
    for group in config.instance_group:
        subject = f"instance group {group.name} of model {config.name}"
        if group.kind == ModelInstanceGroup.KIND_GPU and not gpus:
            raise ConfigInvalid(f"{subject} has kind KIND_GPU but server does not support GPUs{reason}")
        if group.kind == ModelInstanceGroup.KIND_AUTO and not gpus:
            raise ConfigInvalid(f"{subject} specifies gpus {list(group.gpus)} but server does not support GPUs{reason}")
        kind = ModelInstanceGroup.Kind.Name(group.kind)
        if group.kind == ModelInstanceGroup.KIND_MODEL and instead_of_kind_model:
            raise Unsupported(
                f"{subject} has kind KIND_MODEL, and models of backend '{config.backend}' do not choose their devices "
                f"by themselves: {instead_of_kind_model}"
            )
        if group.gpus and group.kind not in {ModelInstanceGroup.KIND_GPU, ModelInstanceGroup.KIND_AUTO}:
            raise ConfigInvalid(f"{subject} has kind {kind} but specifies one or more GPUs")
        _check_gpus(subject, group.gpus, gpus)
        if group.profile and "instance_group[].profile" not in has:
            raise ConfigInvalid(
                f"{subject} and platform {config.platform}specifies profile field which is only supported for "
                "TensorRT models"
            )


def _check_gpus(subject: str, asked: Iterable[int], gpus: Sequence[int]) -> None:
    for gpu in asked:
        if gpu not in gpus:
            available = ", ".join(map(str, gpus))
            raise ConfigInvalid(
                f"{subject} specifies invalid or unsupported gpu id {gpu}. GPUs with at least the minimum required "
                f"CUDA compute compatibility are: {available}"
            )


def check_threads(config: ModelConfig, threads: int) -> None:
    """The threads that each instance is to have"""
    instances = instances_of(config)
    if instances * threads > _MAX_THREADS_OF_ALL:
        raise Unsupported(
            f"model '{config.name}' has {instances} instances of {threads} threads, at most {_MAX_THREADS_OF_ALL} "
            "threads are supported by this version"
        )


def check_tensors(config: ModelConfig) -> None:
    """Inputs and outputs, after auto-completion"""
    for tensor in config.input:
        _check_tensor(tensor, config, "model input ")
        if tensor.format in {ModelInput.FORMAT_NHWC, ModelInput.FORMAT_NCHW} and len(tensor.dims) != 3:
            raise ConfigInvalid(f"model input NHWC/NCHW require 3 dims for {config.name}")
    for output in config.output:
        _check_tensor(output, config, "model output ")
    for role, tensors in (("input", config.input), ("output", config.output)):
        counts = Counter(tensor.name for tensor in tensors)
        if twice := next((name for name, count in counts.items() if count > 1), None):
            raise ConfigInvalid(f"model {role} '{twice}' is specified more than once for {config.name}")


def check_outputs(config: ModelConfig) -> None:
    """After auto-completion: a model answers something"""
    if not config.output:
        raise ConfigInvalid(f"model must specify at least one output for {config.name}")


def _check_tensor(tensor: ModelInput | ModelOutput, config: ModelConfig, prefix: str) -> None:
    fault = _tensor_fault(tensor, config.max_batch_size)
    if fault:
        named = f"'{tensor.name}' " if tensor.name else ""
        raise ConfigInvalid(f"{prefix}{named}{fault} for {config.name}")


def _tensor_fault(tensor: ModelInput | ModelOutput, max_batch_size: int) -> str:
    dims, shape = list(tensor.dims), list(tensor.reshape.shape)
    if max(len(dims), len(shape)) > _MAX_DIMS:
        return f"has {max(len(dims), len(shape))} dimensions, expected at most {_MAX_DIMS},"
    reshaped = tensor.HasField("reshape")
    faults = {
        "must specify 'name'": not tensor.name,
        "must specify 'data_type'": tensor.data_type == DataType.Value("TYPE_INVALID"),
        "must specify 'dims'": not dims,
        "cannot have empty reshape for non-batching model as scalar tensors are not supported": reshaped
        and not shape
        and max_batch_size == 0,
        "dimension must be integer >= 1, or -1 to indicate a variable-size dimension": any(map(_illegal, dims)),
        "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension": any(
            map(_illegal, shape)
        ),
        "has different number of variable-size dimensions for dims and reshape": reshaped
        and _ANY in dims
        and _ANY in shape
        and dims.count(_ANY) != shape.count(_ANY),
        "has different size for dims and reshape": reshaped and _sizes(dims) != _sizes(shape),
    }
    return next((text for text, wrong in faults.items() if wrong), "")


def _illegal(dim: int) -> bool:
    return dim < 1 and dim != _ANY


def _sizes(dims: list[int]) -> list[int]:
    """The number of elements of each run of fixed dimensions between the variable ones; 1 for an empty run"""
    sizes = [1]
    for variable, run in groupby(dims, key=lambda dim: dim == _ANY):
        if variable:
            sizes += [1] * len(list(run))
        else:
            sizes[-1] *= prod(run)
    return sizes
