"""What the rest of the package knows about ONNX models before one is loaded"""

from collections.abc import Mapping
from types import MappingProxyType

from ...errors import ConfigInvalid
from ...repository.descriptor import Descriptor
from ...repository.values import DIRECTORY, SWITCH, THREADS, boolean
from .session_entries import REFUSED_ENTRIES, SESSION_ENTRIES
from .text_parameters import TEXT_PARAMETERS

__all__ = ["DESCRIPTOR"]

_NAME = "onnxruntime"


def _check_threads(settings: Mapping[str, str]) -> None:
    for key in ("intra_op_thread_count", "inter_op_thread_count"):
        if key in settings and not boolean(settings.get("enable-global-threadpool", "0")):
            raise ConfigInvalid(
                f"backend config '{_NAME},{key}' is about the global thread pool: expected "
                f"'{_NAME},enable-global-threadpool=1' with it"
            )


DESCRIPTOR = Descriptor(
    name=_NAME,
    loads=f"{__package__}.backend:OnnxBackend",
    kinds=(("onnxruntime_onnx", "model.onnx"), ("onnxruntime_onnx", "model.ort")),
    order=20,
    bare_suffixes=(".onnx", ".ort"),
    reads_data=True,
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
        "kushi.batch_sizes",
        "kushi.profile",
        "memory.enable_memory_arena_shrinkage",
        *SESSION_ENTRIES,
        *TEXT_PARAMETERS,
    ),
    refused=REFUSED_ENTRIES,
    fields=("model_operations", "optimization.execution_accelerators", "optimization.graph"),
    settings=MappingProxyType(
        {
            "enable-global-threadpool": SWITCH,
            "engine-cache-directory": DIRECTORY,
            "inter_op_thread_count": THREADS,
            "intra_op_thread_count": THREADS,
            "profile-directory": DIRECTORY,
        }
    ),
    check_settings=_check_threads,
    packages=("onnxruntime", "onnxruntime-gpu"),
    install="kushi[cpu]",
    executed_by="native code",
    alone=f"{__package__}.alone:open_alone",
)
