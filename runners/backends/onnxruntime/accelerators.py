"""
What optimization.execution_accelerators of config.pbtxt says, for ONNX Runtime's execution providers: Triton's names
for their options on the one side, the providers' own on the other. What is not known is refused by its name; what would
be without effect is logged.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ...errors import ConfigInvalid, Unsupported
from ...nearest import hint
from ...repository.messages import ModelConfig, ModelOptimizationPolicy
from ...repository.specification import instances_of
from ..cores import cores_for_all
from . import cuda
from .files import ModelFiles
from .library import Runtime
from .openvino import OPENVINO, offered, properties
from .tensorrt import DEVICE, GRAPHS, INSTALL, TENSORRT, kept_with_the_model
from .values import Accelerator, Option, Provider, at_least, off, one_of, switch

__all__ = ["check_accelerators", "providers_at"]

_LOG = logging.getLogger(__name__)
_Stated = ModelOptimizationPolicy.ExecutionAccelerators.Accelerator

_SEARCHES = ("EXHAUSTIVE", "HEURISTIC", "DEFAULT")
_STRATEGIES = ("kNextPowerOfTwo", "kSameAsRequested")
_ADDRESS = "is an address in the memory of one process"
_CUDA = Accelerator(
    title="CUDA",
    provider=cuda.PROVIDER,
    install=INSTALL,
    parameters=MappingProxyType(
        {
            key: Option(key, kind)
            for kind, keys in {
                one_of(*_STRATEGIES): ("arena_extend_strategy",),
                one_of(*_SEARCHES): ("cudnn_conv_algo_search",),
                at_least(0): ("gpu_mem_limit", "sdpa_kernel", "tunable_op_max_tuning_duration_ms"),
                off(GRAPHS): ("enable_cuda_graph",),
                switch: (
                    "cudnn_conv1d_pad_to_nc1d",
                    "cudnn_conv_use_max_workspace",
                    "do_copy_in_default_stream",
                    "enable_skip_layer_norm_strict_mode",
                    "fuse_conv_bias",
                    "prefer_nhwc",
                    "tunable_op_enable",
                    "tunable_op_tuning_enable",
                    "use_ep_level_unified_stream",
                    "use_tf32",
                ),
            }.items()
            for key in keys
        }
    ),
    refused=MappingProxyType(
        {
            "device_id": DEVICE,
            "gpu_external_alloc": _ADDRESS,
            "gpu_external_empty_cache": _ADDRESS,
            "gpu_external_free": _ADDRESS,
            "has_user_compute_stream": _ADDRESS,
            "user_compute_stream": _ADDRESS,
        }
    ),
)
# parameters of the model that say the same, as numbers; Triton keeps them for configurations of old
_CUDA_PARAMETERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "arena_extend_strategy": _STRATEGIES,
        "cudnn_conv_algo_search": _SEARCHES,
        "do_copy_in_default_stream": (),
        "gpu_mem_limit": (),
    }
)
_ACCELERATORS = MappingProxyType({"cuda": _CUDA, "tensorrt": TENSORRT, "openvino": OPENVINO})


def check_accelerators(config: ModelConfig, places: Sequence[int | None], runtime: Runtime) -> None:
    """Refuses accelerators that are not there. Those that no instance could use have no effect, as in Triton"""
    stated = config.optimization.execution_accelerators
    names = [one.name for one in (*stated.gpu_execution_accelerator, *stated.cpu_execution_accelerator)]
    for name in names:
        if names.count(name) > 1:
            raise ConfigInvalid(f"{_named(config, name)} is requested {names.count(name)} times, expected it once")
    for accelerator in stated.gpu_execution_accelerator:
        _check_known(accelerator, ("tensorrt", "cuda"))
        if set(places) == {None}:
            _LOG.warning("%s has no effect: it %s", _named(config, accelerator.name), _no_gpu(runtime))
            continue
        _check_available(config, accelerator.name, runtime)
    for key in _CUDA_PARAMETERS:
        if key in config.parameters and set(places) == {None}:
            _LOG.warning("parameter '%s' of model '%s' has no effect: it %s", key, config.name, _no_gpu(runtime))
    for accelerator in stated.cpu_execution_accelerator:
        _check_known(accelerator, ("openvino",))
        if None not in places:
            _LOG.warning("%s has no effect: no instance group is of KIND_CPU", _named(config, accelerator.name))
            continue
        _check_available(config, accelerator.name, _with_openvino(config, runtime))


def providers_at(config: ModelConfig, gpu: int | None, files: ModelFiles) -> tuple[Provider, ...]:
    """The providers of an instance on this GPU, or on the CPU, in their order; checked before"""
    stated = config.optimization.execution_accelerators
    if gpu is None:
        share = max(1, cores_for_all(config) // max(1, instances_of(config)))
        return tuple(
            Provider("openvino", properties(_options(accelerator, files), share))
            for accelerator in stated.cpu_execution_accelerator
        )
    device = ("device_id", str(gpu))
    providers = [
        Provider("tensorrt", (*kept_with_the_model(_options(accelerator, files), files), device))
        for accelerator in stated.gpu_execution_accelerator
        if accelerator.name == "tensorrt"
    ]
    options = _cuda_parameters(config, files)
    for accelerator in stated.gpu_execution_accelerator:
        if accelerator.name == "cuda":
            for key, value in _options(accelerator, files):
                if options.setdefault(key, value) != value:
                    raise ConfigInvalid(
                        f"'{key}' of model '{config.name}' is '{options[key]}' among its parameters and '{value}' "
                        "among those of its CUDA Execution Accelerator, expected it once"
                    )
    # what TensorRT does not take runs on CUDA
    return (*providers, Provider("cuda", (*options.items(), device)))


def _options(stated: _Stated, files: ModelFiles) -> Iterator[tuple[str, str]]:
    accelerator = _ACCELERATORS[stated.name]
    named = f"{accelerator.title} Execution Accelerator"
    for key in sorted(stated.parameters):
        more = hint(key, sorted(accelerator.parameters))
        if key not in accelerator.parameters and not accelerator.read_by_triton:
            why = accelerator.refused.get(key, f"is not known, {more}")
            _LOG.warning("parameter '%s' of the %s has no effect: it %s", key, named, why)
            continue
        if key in accelerator.refused:
            raise Unsupported(f"parameter '{key}' of the {named} is not supported: it {accelerator.refused[key]}")
        if key not in accelerator.parameters:
            raise ConfigInvalid(f"unknown parameter '{key}' is provided for {named}, {more}")
        yield from accelerator.parameters[key](stated.parameters[key], f"parameter '{key}' of the {named}", files)


def _cuda_parameters(config: ModelConfig, files: ModelFiles) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, words in _CUDA_PARAMETERS.items():
        if key not in config.parameters:
            continue
        value = config.parameters[key].string_value
        if not words:
            options |= _CUDA.parameters[key](value, f"parameter '{key}' of model '{config.name}'", files)
        elif value in map(str, range(len(words))):
            options[key] = words[int(value)]
        else:
            meant = ", ".join(f"{index} ({word})" for index, word in enumerate(words))
            raise ConfigInvalid(f"unsupported {key} value '{value}' is requested, expected one of {meant}")
    return options


def _check_known(accelerator: _Stated, names: Sequence[str]) -> None:
    if accelerator.name not in names:
        raise ConfigInvalid(
            f"unknown Execution Accelerator '{accelerator.name}' is requested, expected {' or '.join(names)}"
        )


def _check_available(config: ModelConfig, name: str, runtime: Runtime) -> None:
    accelerator = _ACCELERATORS[name]
    if accelerator.provider not in runtime.providers:
        raise Unsupported(
            f"{_named(config, name)} cannot be used: {runtime.lack(accelerator.provider)}: {accelerator.install}"
        )


def _with_openvino(config: ModelConfig, runtime: Runtime) -> Runtime:
    try:
        return offered(runtime)
    except ConfigInvalid as error:
        raise Unsupported(f"{_named(config, 'openvino')} cannot be used: {error}") from None


def _named(config: ModelConfig, name: str) -> str:
    return f"execution accelerator '{name}' of model '{config.name}'"


def _no_gpu(runtime: Runtime) -> str:
    why = "its instance groups are of KIND_CPU" if runtime.gpus() else runtime.why_no_gpu()
    return f"needs an instance group on a GPU: {why}"
