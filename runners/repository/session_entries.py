"""
The session configuration of ONNX Runtime that a model may state among its parameters, under ONNX Runtime's own names,
with the values that each takes. What would read or write files of the host's is not among them.
"""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["SESSION_ENTRIES"]

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
        "session.qdqisint8allowed": _SWITCH,
        "session.strict_shape_type_inference": _SWITCH,
        "session.use_device_allocator_for_initializers": _SWITCH,
        "session.x64quantprecision": _SWITCH,
    }
)
"""None: any text"""
