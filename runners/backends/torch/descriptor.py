"""What the rest of the package knows about PyTorch models before one is loaded"""

from ...repository.descriptor import Descriptor

__all__ = ["DESCRIPTOR"]

DESCRIPTOR = Descriptor(
    name="pytorch",
    loads=f"{__package__}.backend:TorchBackend",
    kinds=(("pytorch_libtorch", "model.pt"), ("libtorch", "model.pt"), ("torch_aoti", "model.pt2")),
    order=40,
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
        "kushi.compile",
        "kushi.cuda_graphs",
        "kushi.cuda_graphs_padding",
        "kushi.imports",
    ),
    packages=("torch",),
    install="kushi[torch]",
    alone=f"{__package__}.alone:open_alone",
)
