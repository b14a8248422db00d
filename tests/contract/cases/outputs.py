"""How outputs are asked for: classes, and parameters that are reserved."""

from __future__ import annotations

from typing import Final

from tests.contract.cases.case import NOT_UNSIGNED, Case, Code, Http, document
from tests.contract.requests import Infer, Output, Tensor, strings

RESERVED: Final = "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."


def asking(**parameters: object) -> Http:
    """A request for ``add_sub`` that says how it wants its first output."""
    return document(outputs=[{"name": "OUTPUT0", "parameters": parameters}])


UNSUPPORTED_CASES: Final = [
    *(
        Case(
            f"classes of {datatype}",
            Infer(
                f"identity_{datatype.lower()}",
                [Tensor("INPUT0", datatype, (1, 2), raw=raw)],
                [Output("OUTPUT0", binary=True, classes=1)],
            ),
            Code.INVALID_ARGUMENT,
            f"class result not available for output due to unsupported type '{datatype}'",
        )
        for datatype, raw in (
            ("BOOL", b"\0" * 2),
            ("FP16", b"\0" * 4),
            ("BF16", b"\0" * 4),
            ("BYTES", strings(b"a", b"b")),
        )
    ),
    Case(
        "classes of a tensor that is too large",
        Infer(
            "identity_int8",
            [Tensor("INPUT0", "INT8", (1, 1_000_001), raw=b"\0" * 1_000_001)],
            [Output("OUTPUT0", classes=1)],
        ),
        Code.INVALID_ARGUMENT,
        "classification output tensor too large",
    ),
    Case(
        "classes of an output in shared memory",
        asking(classification=0, shared_memory_region="region", shared_memory_byte_size=64),
        Code.INVALID_ARGUMENT,
        "Output can't set both 'shared_memory_region' and 'classification'",
    ),
    Case(
        "a negative number of classes",
        asking(classification=-1),
        Code.INTERNAL,
        f"Unable to set 'classification': {NOT_UNSIGNED}",
    ),
    Case(
        "a classification that is no number",
        asking(classification="x", binary_data="x"),
        Code.INTERNAL,
        f"Unable to set 'classification': {NOT_UNSIGNED}",
    ),
    *(
        Case(
            f"the reserved parameter {name}",
            document(parameters={"mood": 1, name: value}),
            Code.INVALID_ARGUMENT,
            RESERVED,
        )
        for name, value in (("triton_", 1), ("triton_enable_empty_final_response", True))
    ),
]
