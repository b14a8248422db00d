"""The frameworks that execute models in this version: their names in config.pbtxt, their files, their parameters"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from .session_entries import REFUSED_ENTRIES, SESSION_ENTRIES

__all__ = ["FRAMEWORKS", "Framework"]


@dataclass(frozen=True)
class Framework:
    """
    One value of `backend`; the first platform and the first file are the defaults. `fields` are those of config.pbtxt
    that it honours beside the ones that all do, `refused` parameters that it knows and does not take, with the reason.
    """

    platforms: tuple[str, ...]
    files: tuple[str, ...]
    cpu_instances: int
    parameters: tuple[str, ...]
    fields: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {
        "onnxruntime": Framework(
            platforms=("onnxruntime_onnx",),
            files=("model.onnx", "model.ort"),
            cpu_instances=2,
            parameters=(
                "arena_extend_strategy",
                "cudnn_conv_algo_search",
                "do_copy_in_default_stream",
                "enable_mem_arena",
                "enable_mem_pattern",
                "execution_mode",
                "gpu_mem_limit",
                "inter_op_thread_count",
                "intra_op_thread_count",
                "kushi.profile",
                "memory.enable_memory_arena_shrinkage",
                *SESSION_ENTRIES,
            ),
            fields=("model_operations", "optimization.execution_accelerators"),
            refused=REFUSED_ENTRIES,
        ),
        "pytorch": Framework(
            platforms=("pytorch_libtorch", "libtorch", "torch_aoti"),
            files=("model.pt", "model.pt2"),
            cpu_instances=1,
            parameters=(
                "DISABLE_CUDNN",
                "DISABLE_OPTIMIZED_EXECUTION",
                "ENABLE_CACHE_CLEANING",
                "ENABLE_JIT_EXECUTOR",
                "ENABLE_JIT_PROFILING",
                "ENABLE_TENSOR_FUSER",
                "ENABLE_WEIGHT_SHARING",
                "INFERENCE_MODE",
                "INTER_OP_THREAD_COUNT",
                "INTRA_OP_THREAD_COUNT",
            ),
        ),
    }
)
