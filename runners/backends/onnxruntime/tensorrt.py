"""The parameters of Triton's TensorRT accelerator, and the options of ONNX Runtime's TensorRT provider behind them"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from ...errors import ConfigInvalid
from .files import ModelFiles
from .values import Accelerator, Option, Options, at_least, cache, libraries, name, off, output, switch, text

__all__ = ["DEVICE", "GRAPHS", "INSTALL", "TENSORRT", "kept_with_the_model"]

INSTALL = "pip install 'kushi[gpu]' in the place of 'kushi[cpu]'"
DEVICE = "is said by instance_group.gpus"
# replaying a graph takes inputs and outputs at fixed places of device memory, and those of requests are on the host
GRAPHS = "replays a CUDA graph on fixed memory of the GPU, which this version does not keep inputs and outputs in"
_PRECISIONS: Mapping[str, Options] = MappingProxyType(
    {
        "FP32": (),
        "FP16": (("trt_fp16_enable", "1"),),
        "BF16": (("trt_bf16_enable", "1"),),
        "INT8": (("trt_int8_enable", "1"),),
    }
)
_BY_PRECISION = "is said by 'precision_mode'"
_CACHE = "trt_engine_cache_path"
_TIMING = "trt_timing_cache_path"
_CONTEXT = "trt_ep_context_file_path"


def _precision(mode: str, _what: str, _files: ModelFiles) -> Options:
    if mode not in _PRECISIONS:
        raise ConfigInvalid(f"unsupported precision mode '{mode}' is requested, expected {', '.join(_PRECISIONS)}")
    return _PRECISIONS[mode]


TENSORRT = Accelerator(
    title="TensorRT",
    provider="TensorrtExecutionProvider",
    install=INSTALL,
    parameters=MappingProxyType(
        {
            "precision_mode": _precision,
            "max_workspace_size_bytes": Option("trt_max_workspace_size", at_least(0)),
            "int8_calibration_table_name": Option("trt_int8_calibration_table_name", name),
            "int8_use_native_calibration_table": Option("trt_int8_use_native_calibration_table", switch),
            **{
                key: Option(key, kind)
                for kind, keys in {
                    at_least(-1): ("trt_auxiliary_streams",),
                    at_least(0): ("trt_dla_core",),
                    at_least(0, 1): ("trt_ep_context_embed_mode",),
                    at_least(0, 5): ("trt_builder_optimization_level",),
                    at_least(1): ("trt_max_partition_iterations", "trt_min_subgraph_size"),
                    switch: (
                        "trt_build_heuristics_enable",
                        "trt_context_memory_sharing_enable",
                        "trt_detailed_build_log",
                        "trt_dla_enable",
                        "trt_dump_ep_context_model",
                        "trt_engine_cache_enable",
                        "trt_engine_hw_compatible",
                        "trt_force_sequential_engine_build",
                        "trt_force_timing_cache",
                        "trt_layer_norm_fp32_fallback",
                        "trt_sparsity_enable",
                        "trt_timing_cache_enable",
                        "trt_weight_stripped_engine_enable",
                    ),
                    off(GRAPHS): ("trt_cuda_graph_enable",),
                    off("writes files into the working directory of the server"): ("trt_dump_subgraphs",),
                    name: ("trt_engine_cache_prefix",),
                    cache: (_CACHE, _TIMING),
                    output: (_CONTEXT,),
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
    ),
    refused=MappingProxyType(
        {
            "device_id": DEVICE,
            "trt_bf16_enable": _BY_PRECISION,
            "trt_fp16_enable": _BY_PRECISION,
            "trt_int8_calibration_table_name": "is said by 'int8_calibration_table_name'",
            "trt_int8_enable": _BY_PRECISION,
            "trt_int8_use_native_calibration_table": "is said by 'int8_use_native_calibration_table'",
            "trt_max_workspace_size": "is said by 'max_workspace_size_bytes'",
        }
    ),
)


def kept_with_the_model(stated: Iterable[tuple[str, str]], files: ModelFiles) -> Options:
    """The options with a place for all that TensorRT writes: without one it takes the server's working directory"""
    options = dict(stated)

    def place(key: str, otherwise: str | None = None) -> str:
        if key not in options:
            options[key] = otherwise or files.output(".", f"parameter '{key}' of the TensorRT Execution Accelerator:")
        return options[key]

    caches = {"trt_engine_cache_enable", "trt_int8_enable", "trt_timing_cache_enable"}
    on = {key for key, value in options.items() if value == "1"}
    if on & caches:
        place(_CACHE)
    if "trt_timing_cache_enable" in on:
        place(_TIMING, options[_CACHE])
    if "trt_dump_ep_context_model" in on:
        context = Path(place(_CONTEXT))
        folder = context.parent if context.suffix else context
        # beside a context model TensorRT takes the directory of its engines by where it lies from that model
        engines = Path(options.get(_CACHE, folder))
        if not engines.is_relative_to(folder):
            raise ConfigInvalid(
                f"parameter '{_CACHE}' of the TensorRT Execution Accelerator: '{engines}' must be inside '{folder}', "
                "where the EP context model goes"
            )
        options[_CACHE] = str(engines.relative_to(folder))
    return tuple(options.items())
