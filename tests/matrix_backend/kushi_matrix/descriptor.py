"""What Kushi knows about matrices before one is loaded"""

from runners.backends import Descriptor, Setting

DESCRIPTOR = Descriptor(
    name="matrix",
    loads="kushi_matrix.backend:MatrixBackend",
    kinds=(("matrix_json", "model.matrix"),),
    bare_suffixes=(".matrix",),
    parameters=("scale",),
    settings={"digits": Setting("one digit", lambda text: text in set("0123456789"))},
    install="kushi-matrix",
)
