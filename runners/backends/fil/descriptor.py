"""What the rest of the package knows about forests of decision trees before one is loaded"""

from types import MappingProxyType

from ...repository.descriptor import Descriptor

__all__ = ["DESCRIPTOR", "FILES"]

FILES = MappingProxyType(
    {
        "treelite_checkpoint": "checkpoint.tl",
        "xgboost_json": "xgboost.json",
        "xgboost_ubj": "xgboost.ubj",
        "xgboost": "xgboost.model",
        "lightgbm": "model.txt",
    }
)
"""By the values of `model_type`"""

_FOR_GPUS = (
    "algo",
    "blocks_per_sm",
    "chunk_size",
    "layout",
    "storage_type",
    "threads_per_tree",
    "transfer_threshold",
    "use_experimental_optimizations",
)
"""They change how fast Triton's backend is, and nothing else"""

DESCRIPTOR = Descriptor(
    name="fil",
    loads=f"{__package__}.backend:ForestBackend",
    kinds=(("", "checkpoint.tl"),),
    files_of=MappingProxyType({"model_type": FILES}),
    order=55,
    bare_suffixes=(".tl", ".ubj"),
    reads_data=True,
    parameters=(
        "cpu_nthread",
        "is_classifier",
        "model_type",
        "output_class",
        "predict_proba",
        "threshold",
        "xgboost_allow_unknown_field",
        *_FOR_GPUS,
    ),
    packages=("treelite",),
    install="kushi[fil]",
    executed_by="native code",
    alone=f"{__package__}.alone:open_alone",
)
