"""What the rest of the package knows about models of OpenVINO before one is loaded"""

from types import MappingProxyType

from ...repository.descriptor import Descriptor
from ...repository.values import DIRECTORY

__all__ = ["DESCRIPTOR"]

DESCRIPTOR = Descriptor(
    name="openvino",
    loads=f"{__package__}.backend:OpenVinoBackend",
    kinds=(("", "model.xml"),),
    order=30,
    bare_suffixes=(".xml", ".tflite"),
    reads_data=True,
    code=("CPU_EXTENSION_PATH",),
    parameters=(
        "COMPILATION_NUM_THREADS",
        "CPU_EXTENSION_PATH",
        "ENABLE_BATCH_PADDING",
        "HINT_BF16",
        "INFERENCE_NUM_THREADS",
        "NUM_STREAMS",
        "PERFORMANCE_HINT",
        "RESHAPE_IO_LAYERS",
        "SKIP_OV_DYNAMIC_BATCHSIZE",
        "TARGET_DEVICE",
    ),
    settings=MappingProxyType({"engine-cache-directory": DIRECTORY}),
    packages=("openvino",),
    install="kushi[openvino]",
    executed_by="native code",
    alone=f"{__package__}.alone:open_alone",
)
