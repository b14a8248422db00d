"""What the rest of the package knows about generative models before one is loaded"""

from ...repository.descriptor import Descriptor
from .parameters import PARAMETERS

__all__ = ["DESCRIPTOR"]

DESCRIPTOR = Descriptor(
    name="openvino_genai",
    loads=f"{__package__}.backend:GenerativeBackend",
    kinds=(("", "model.gguf"), ("", "openvino_model.xml")),
    order=60,
    bare_suffixes=(".gguf",),
    reads_data=True,
    parameters=PARAMETERS,
    fields=("model_transaction_policy",),
    packages=("openvino-genai",),
    install="kushi[llm]",
    executed_by="processes",
    apart=True,
)
