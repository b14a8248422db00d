"""The parameters of Triton's TensorRT accelerator, and the options of ONNX Runtime's TensorRT provider behind them"""

from collections.abc import Mapping
from types import MappingProxyType

from ...errors import ConfigInvalid
from .values import Option, libraries, name, number, output, switch, text

__all__ = ["PRECISION", "TENSORRT_OPTIONS", "precision"]

PRECISION = "precision_mode"
_PRECISIONS = {"FP32": None, "FP16": "trt_fp16_enable", "BF16": "trt_bf16_enable", "INT8": "trt_int8_enable"}

TENSORRT_OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "max_workspace_size_bytes": Option("trt_max_workspace_size", number),
        "int8_calibration_table_name": Option("trt_int8_calibration_table_name", name),
        "int8_use_native_calibration_table": Option("trt_int8_use_native_calibration_table", switch),
        **{
            key: Option(key, kind)
            for kind, keys in {
                number: (
                    "trt_auxiliary_streams",
                    "trt_builder_optimization_level",
                    "trt_dla_core",
                    "trt_ep_context_embed_mode",
                    "trt_max_partition_iterations",
                    "trt_min_subgraph_size",
                ),
                switch: (
                    "trt_build_heuristics_enable",
                    "trt_context_memory_sharing_enable",
                    "trt_detailed_build_log",
                    "trt_dla_enable",
                    "trt_dump_ep_context_model",
                    "trt_dump_subgraphs",
                    "trt_engine_cache_enable",
                    "trt_engine_hw_compatible",
                    "trt_force_sequential_engine_build",
                    "trt_force_timing_cache",
                    "trt_layer_norm_fp32_fallback",
                    "trt_sparsity_enable",
                    "trt_timing_cache_enable",
                    "trt_weight_stripped_engine_enable",
                ),
                name: ("trt_engine_cache_prefix",),
                output: ("trt_engine_cache_path", "trt_ep_context_file_path", "trt_timing_cache_path"),
                libraries: ("trt_extra_plugin_lib_paths",),
                text: (
                    "trt_op_types_to_exclude",
                    "trt_profile_max_shapes",
                    "trt_profile_min_shapes",
                    "trt_profile_opt_shapes",
                    "trt_tactic_sources",
                ),
            }.items()
            for key in keys
        },
    }
)


def precision(mode: str) -> tuple[tuple[str, str], ...]:
    """The option for a `precision_mode`; FP32 needs none"""
    if mode not in _PRECISIONS:
        raise ConfigInvalid(f"unsupported precision mode '{mode}' is requested, expected {', '.join(_PRECISIONS)}")
    option = _PRECISIONS[mode]
    return ((option, "1"),) if option else ()
