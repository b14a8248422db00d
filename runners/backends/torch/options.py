"""What the parameters of config.pbtxt say about running a PyTorch model, in the words of Triton's backend"""

from dataclasses import dataclass

from ...errors import ConfigInvalid, Unsupported
from ...integers import MAX_THREADS
from ...repository.isolation import ISOLATE
from ...repository.messages import ModelConfig
from ...repository.specification import parameter
from ...repository.values import BOOLEANS, boolean

__all__ = ["TorchOptions", "check_applicable", "check_sharing", "read_options"]

# they steer the interpreter of TorchScript, which exported programs do not use
_ABOUT_SCRIPTS = ("DISABLE_OPTIMIZED_EXECUTION", "ENABLE_JIT_EXECUTOR", "ENABLE_JIT_PROFILING", "ENABLE_TENSOR_FUSER")


@dataclass(frozen=True)
class TorchOptions:
    """`None` leaves it to PyTorch, or to the model; 0 threads to the policy"""

    inference_mode: bool
    optimized_execution: bool
    cudnn: bool
    cache_cleaning: bool
    weight_sharing: bool | None
    jit_executor: bool | None
    jit_profiling: bool | None
    tensor_fuser: bool | None
    intra_op_threads: int
    inter_op_threads: int


def read_options(config: ModelConfig) -> TorchOptions:
    """The options of a model, each checked"""
    return TorchOptions(
        inference_mode=_switch(config, "INFERENCE_MODE") is not False,
        optimized_execution=_switch(config, "DISABLE_OPTIMIZED_EXECUTION") is not True,
        cudnn=_switch(config, "DISABLE_CUDNN") is not True,
        cache_cleaning=_switch(config, "ENABLE_CACHE_CLEANING") is True,
        weight_sharing=_switch(config, "ENABLE_WEIGHT_SHARING"),
        jit_executor=_switch(config, "ENABLE_JIT_EXECUTOR"),
        jit_profiling=_switch(config, "ENABLE_JIT_PROFILING"),
        tensor_fuser=_switch(config, "ENABLE_TENSOR_FUSER"),
        intra_op_threads=parameter(config, "INTRA_OP_THREAD_COUNT", 0, most=MAX_THREADS),
        inter_op_threads=parameter(config, "INTER_OP_THREAD_COUNT", 0, most=MAX_THREADS),
    )


def check_applicable(config: ModelConfig, *, is_script: bool) -> None:
    """Refuses what would be without effect on an exported program"""
    for key in _ABOUT_SCRIPTS:
        if key in config.parameters and not is_script:
            raise Unsupported(
                f"parameter '{key}' of model '{config.name}' is about TorchScript, and the model is an exported "
                "program: remove it"
            )


def check_sharing(config: ModelConfig, options: TorchOptions, instances: int) -> None:
    """Refuses weights that processes cannot share"""
    if options.weight_sharing and instances > 1:
        raise ConfigInvalid(
            f"parameter 'ENABLE_WEIGHT_SHARING' of model '{config.name}' is true, and its {instances} instances have "
            f"processes of their own ('{ISOLATE}'), each with its own weights: remove one of them"
        )


def _switch(config: ModelConfig, key: str) -> bool | None:
    if key not in config.parameters:
        return None
    text = config.parameters[key].string_value
    value = boolean(text)
    if value is None:
        raise ConfigInvalid(f"parameter '{key}' of model '{config.name}': expected {BOOLEANS}, got '{text}'")
    return value
