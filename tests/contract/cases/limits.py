"""More of something than one request may have."""

from __future__ import annotations

import json
from typing import Final

from tests.contract.cases.case import Case, Code, Http, document

MOST: Final = 1024
TENSORS: Final = "request has 1025 inputs and outputs, at most 1024 are allowed (--http-max-tensors)"


def parameters(count: int) -> dict[str, int]:
    return {f"p{number}": number for number in range(count)}


LIMIT_CASES: Final = [
    Case(
        "more parameters than are allowed",
        document(parameters=parameters(MOST + 1)),
        Code.INVALID_ARGUMENT,
        "request has 1025 parameters, at most 1024 are allowed",
    ),
    Case(
        "more dimensions than are allowed",
        document({"shape": [1] * (MOST + 1)}),
        Code.INVALID_ARGUMENT,
        "input 'INPUT0' has more than 1024 dimensions",
    ),
    Case("more inputs than are allowed", document(inputs=[{}] * (MOST + 1)), Code.INVALID_ARGUMENT, TENSORS),
    Case(
        "more inputs and outputs than are allowed",
        document(inputs=[{}] * MOST, outputs=[{}]),
        Code.INVALID_ARGUMENT,
        TENSORS,
    ),
    *(
        Case(
            f"{verb}: more keys than are allowed",
            Http(json.dumps(parameters(MOST + 4)).encode(), path=f"/v2/models/add_sub/{verb}"),
            Code.INVALID_ARGUMENT,
            "request has 1028 keys, at most 1027 are allowed for model 'add_sub'",
        )
        for verb in ("generate", "generate_stream")
    ),
    Case(
        "generate: more parameters than are allowed",
        Http(json.dumps(parameters(MOST + 1)).encode(), path="/v2/models/add_sub/generate"),
        Code.INVALID_ARGUMENT,
        "request has more than 1024 parameters",
    ),
]
