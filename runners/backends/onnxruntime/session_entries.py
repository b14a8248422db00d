"""
The session configuration of ONNX Runtime that a model may state among its parameters, under ONNX Runtime's own names,
with the values that each takes, and those that it may not state, with the reason.
"""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["REFUSED_ENTRIES", "SESSION_ENTRIES"]

_SWITCH = ("0", "1")

SESSION_ENTRIES: Mapping[str, tuple[str, ...] | None] = MappingProxyType(
    {
        "ep.context_embed_mode": _SWITCH,
        "ep.context_enable": _SWITCH,
        # a path, kept inside the directory of the model
        "ep.context_file_path": None,
        # names of optimisers
        "optimization.disable_specified_optimizers": None,
        "optimization.enable_cast_chain_elimination": _SWITCH,
        "optimization.enable_gelu_approximation": _SWITCH,
        "session.disable_aot_function_inlining": _SWITCH,
        "session.disable_cpu_ep_fallback": _SWITCH,
        "session.disable_double_qdq_remover": _SWITCH,
        "session.disable_prepacking": _SWITCH,
        "session.disable_qdq_constant_folding": _SWITCH,
        "session.disable_quant_qdq": _SWITCH,
        # a number
        "session.dynamic_block_base": None,
        "session.enable_quant_qdq_cleanup": _SWITCH,
        "session.force_spinning_stop": _SWITCH,
        "session.graph_optimizations_loop_level": ("0", "1", "2"),
        "session.inter_op.allow_spinning": _SWITCH,
        "session.intra_op.allow_spinning": _SWITCH,
        "session.load_model_format": ("ONNX", "ORT"),
        "session.qdqisint8allowed": _SWITCH,
        "session.strict_shape_type_inference": _SWITCH,
        "session.use_device_allocator_for_initializers": _SWITCH,
        "session.x64quantprecision": _SWITCH,
    }
)
"""None: any text"""

_FILES = "would read or write files of the host"
_ELSEWHERE = "is said by '{}'"

REFUSED_ENTRIES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "ep.context_model_external_initializers_file_name",
                "session.collect_node_memory_stats_to_file",
                "session.model_external_initializers_file_folder_path",
                "session.moe_expert_counter_state_file",
                "session.node_partition_config_file",
                "session.optimized_model_external_initializers_file_name",
                "session.optimized_model_external_initializers_min_size_in_bytes",
                "session.optimized_model_filepath",
                "session.save_external_prepacked_constant_initializers",
                "session.save_model_format",
            ),
            _FILES,
        ),
        "session.enable_cpu_mem_arena": _ELSEWHERE.format("enable_mem_arena"),
        "session.enable_mem_pattern": _ELSEWHERE.format("enable_mem_pattern"),
        "session.enable_profiling": _ELSEWHERE.format("kushi.profile"),
        "session.execution_mode": _ELSEWHERE.format("execution_mode"),
        "session.graph_optimization_level": _ELSEWHERE.format("optimization.graph.level"),
        "session.inter_op_num_threads": _ELSEWHERE.format("inter_op_thread_count"),
        "session.intra_op_num_threads": _ELSEWHERE.format("intra_op_thread_count"),
        "session.set_denormal_as_zero": "would change how the thread computes that opens the session, and no other",
        "session.use_env_allocators": "has no effect: sessions share no allocator",
    }
)
