"""What the rest of the package knows about TensorRT models before one is loaded"""

from types import MappingProxyType

from ...repository.descriptor import Descriptor
from ...repository.values import DIRECTORY, SWITCH, Setting

__all__ = ["DESCRIPTOR"]

_POLICIES = ("DEVICE_BLOCKING", "BLOCKING")

DESCRIPTOR = Descriptor(
    name="tensorrt",
    loads=f"{__package__}.backend:TensorRTBackend",
    kinds=(("tensorrt_plan", "model.plan"),),
    order=10,
    parameters=(
        "execution_context_allocation_strategy",
        "kushi.max_shapes",
        "kushi.min_shapes",
        "kushi.onnx",
        "kushi.opt_shapes",
    ),
    refused=MappingProxyType(
        {"enable_multi_device": "spreads a model over several GPUs; a Python model with tensorrt can do that"}
    ),
    fields=(
        "cc_model_filenames",
        "input[].is_shape_tensor",
        "instance_group[].profile",
        "optimization.cuda",
        "optimization.eager_batching",
        "optimization.gather_kernel_buffer_threshold",
        "optimization.priority",
        "output[].is_shape_tensor",
    ),
    settings=MappingProxyType(
        {
            "coalesce-request-input": SWITCH,
            "engine-cache-directory": DIRECTORY,
            "execution-policy": Setting(" or ".join(_POLICIES), _POLICIES.__contains__),
            "plugins": Setting("paths of libraries with semicolons between them", lambda text: bool(text.strip("; "))),
            "version-compatible": SWITCH,
        }
    ),
    install="kushi[tensorrt]",
)
