"""What the rest of the package knows about TensorFlow models before one is loaded"""

from types import MappingProxyType

from ...repository.descriptor import Descriptor

__all__ = ["DESCRIPTOR"]

DESCRIPTOR = Descriptor(
    name="tensorflow",
    loads=f"{__package__}.backend:TensorFlowBackend",
    kinds=(("tensorflow_savedmodel", "model.savedmodel"), ("tensorflow_graphdef", "model.graphdef")),
    order=10,
    parameters=(
        "TF_GRAPH_TAG",
        "TF_NUM_INTER_THREADS",
        "TF_NUM_INTRA_THREADS",
        "TF_SIGNATURE_DEF",
        "TF_USE_PER_SESSION_THREADS",
    ),
    refused=MappingProxyType(
        {
            "MAX_SESSION_SHARE_COUNT": "has no meaning where each instance has a process of its own",
            "TF_INIT_OPS_FILE": "would run operations that are no part of the model",
        }
    ),
    install="kushi[tensorflow]",
    executed_by="Python in processes",
    alone=f"{__package__}.alone:open_alone",
)
