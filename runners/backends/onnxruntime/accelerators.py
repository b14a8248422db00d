"""
What optimization.execution_accelerators of config.pbtxt says, for ONNX Runtime's execution providers: Triton's names
for their options on the one side, the providers' own on the other. What is not known is refused by its name, and so is
what would be without effect.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType

from ...errors import ConfigInvalid, Unsupported
from ...repository.messages import ModelConfig, ModelOptimizationPolicy
from . import cuda
from .files import ModelFiles
from .library import Runtime
from .tensorrt import PRECISION, TENSORRT_OPTIONS, precision
from .values import Option, Provider, number, one_of, switch

__all__ = ["check_accelerators", "providers_at"]

_Accelerator = ModelOptimizationPolicy.ExecutionAccelerators.Accelerator

_SEARCHES = ("EXHAUSTIVE", "HEURISTIC", "DEFAULT")
_STRATEGIES = ("kNextPowerOfTwo", "kSameAsRequested")
_CUDA_OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "arena_extend_strategy": Option("arena_extend_strategy", one_of(*_STRATEGIES)),
        "cudnn_conv_algo_search": Option("cudnn_conv_algo_search", one_of(*_SEARCHES)),
        **{key: Option(key, number) for key in ("gpu_mem_limit", "sdpa_kernel", "tunable_op_max_tuning_duration_ms")},
        **{
            key: Option(key, switch)
            for key in (
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
            )
        },
    }
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
_OPENVINO_OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "num_of_threads": Option("num_of_threads", number),
        "num_streams": Option("num_streams", number),
        "precision": Option("precision", one_of("FP32", "FP16", "ACCURACY")),
    }
)
# replaying a graph takes inputs and outputs at fixed places of device memory, and those of requests are on the host
_GRAPHS = "replays a CUDA graph on fixed memory of the GPU, which this version does not keep inputs and outputs in"
_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "device_id": "is said by instance_group.gpus",
        "enable_cuda_graph": _GRAPHS,
        "trt_cuda_graph_enable": _GRAPHS,
    }
)
_NAMES = MappingProxyType({"cuda": "CUDA", "tensorrt": "TensorRT", "openvino": "OpenVINO"})
_PROVIDERS = MappingProxyType(
    {"cuda": cuda.PROVIDER, "tensorrt": "TensorrtExecutionProvider", "openvino": "OpenVINOExecutionProvider"}
)
_INSTALL = MappingProxyType(
    {
        "cuda": "pip install 'kushi[gpu]' in the place of 'kushi[cpu]'",
        "tensorrt": "pip install 'kushi[gpu]' in the place of 'kushi[cpu]'",
        "openvino": "pip install onnxruntime-openvino in the place of onnxruntime",
    }
)


def check_accelerators(config: ModelConfig, places: Sequence[int | None], runtime: Runtime) -> None:
    """Refuses accelerators that no instance could use: of the GPU without one, of the CPU where all are on GPUs"""
    stated = config.optimization.execution_accelerators
    for accelerator in stated.gpu_execution_accelerator:
        _check_known(accelerator, ("tensorrt", "cuda"))
        _check_available(config, accelerator.name, runtime)
        if set(places) == {None}:
            raise ConfigInvalid(f"{_named(config, accelerator.name)} {_no_gpu(runtime)}")
    for key in _CUDA_PARAMETERS:
        if key in config.parameters and set(places) == {None}:
            raise ConfigInvalid(f"parameter '{key}' of model '{config.name}' {_no_gpu(runtime)}")
    for accelerator in stated.cpu_execution_accelerator:
        _check_known(accelerator, ("openvino",))
        _check_available(config, accelerator.name, runtime)
        if None not in places:
            raise ConfigInvalid(f"{_named(config, accelerator.name)} needs an instance group of KIND_CPU")


def providers_at(config: ModelConfig, gpu: int | None, files: ModelFiles) -> tuple[Provider, ...]:
    """The providers of an instance on this GPU, or on the CPU, in their order; checked before"""
    stated = config.optimization.execution_accelerators
    if gpu is None:
        return tuple(
            Provider("openvino", (("device_type", "CPU"), *_options(accelerator, _OPENVINO_OPTIONS, files)))
            for accelerator in stated.cpu_execution_accelerator
        )
    device = ("device_id", str(gpu))
    providers = [
        Provider("tensorrt", (*_options(accelerator, TENSORRT_OPTIONS, files), device))
        for accelerator in stated.gpu_execution_accelerator
        if accelerator.name == "tensorrt"
    ]
    options = _cuda_parameters(config, files)
    for accelerator in stated.gpu_execution_accelerator:
        if accelerator.name == "cuda":
            for key, value in _options(accelerator, _CUDA_OPTIONS, files):
                if options.setdefault(key, value) != value:
                    raise ConfigInvalid(
                        f"'{key}' of model '{config.name}' is '{options[key]}' among its parameters and '{value}' "
                        "among those of its CUDA Execution Accelerator, expected it once"
                    )
    # what TensorRT does not take runs on CUDA
    return (*providers, Provider("cuda", (*options.items(), device)))


def _options(accelerator: _Accelerator, known: Mapping[str, Option], files: ModelFiles) -> list[tuple[str, str]]:
    named = f"{_NAMES[accelerator.name]} Execution Accelerator"
    options: list[tuple[str, str]] = []
    for key in sorted(accelerator.parameters):
        value = accelerator.parameters[key]
        if known is TENSORRT_OPTIONS and key == PRECISION:
            options += precision(value)
        elif key in known:
            options.append((known[key].name, known[key].read(value, f"parameter '{key}' of the {named}", files)))
        elif key in _REFUSED:
            raise Unsupported(f"parameter '{key}' of the {named} is not supported: it {_REFUSED[key]}")
        else:
            names = [*known, *([PRECISION] if known is TENSORRT_OPTIONS else [])]
            near = get_close_matches(key, names, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(sorted(names))}"
            raise ConfigInvalid(f"unknown parameter '{key}' is provided for {named}, {hint}")
    return options


def _cuda_parameters(config: ModelConfig, files: ModelFiles) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, words in _CUDA_PARAMETERS.items():
        if key not in config.parameters:
            continue
        value = config.parameters[key].string_value
        if not words:
            options[key] = _CUDA_OPTIONS[key].read(value, f"parameter '{key}' of model '{config.name}'", files)
        elif value in map(str, range(len(words))):
            options[key] = words[int(value)]
        else:
            meant = ", ".join(f"{index} ({word})" for index, word in enumerate(words))
            raise ConfigInvalid(f"unsupported {key} value '{value}' is requested, expected one of {meant}")
    return options


def _check_known(accelerator: _Accelerator, names: Sequence[str]) -> None:
    if accelerator.name not in names:
        raise ConfigInvalid(
            f"unknown Execution Accelerator '{accelerator.name}' is requested, expected {' or '.join(names)}"
        )


def _check_available(config: ModelConfig, name: str, runtime: Runtime) -> None:
    if _PROVIDERS[name] not in runtime.providers:
        raise Unsupported(f"{_named(config, name)} cannot be used: {runtime.lack(_PROVIDERS[name])}: {_INSTALL[name]}")


def _named(config: ModelConfig, name: str) -> str:
    return f"execution accelerator '{name}' of model '{config.name}'"


def _no_gpu(runtime: Runtime) -> str:
    why = "its instance groups are of KIND_CPU" if runtime.gpus() else runtime.why_no_gpu()
    return f"needs an instance group on a GPU: {why}"
