"""One inference request as bytes: JSON header, then the tensors in binary, as tritonclient sends them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from benchmarks.models import MODELS, inputs

__all__ = ["Payload", "binary_request"]


@dataclass(frozen=True)
class Payload:
    path: str
    headers: dict[str, str]
    body: bytes


def binary_request(name: str, model: str) -> Payload:
    """A request of one row to the model served as `name`."""
    arrays = inputs(model, rows=1)
    described = [
        {
            "name": spec.name,
            "datatype": spec.datatype,
            "shape": list(arrays[spec.name].shape),
            "parameters": {"binary_data_size": arrays[spec.name].nbytes},
        }
        for spec in MODELS[model].inputs
    ]
    header = json.dumps(
        {"inputs": described, "parameters": {"binary_data_output": True}}, separators=(",", ":")
    ).encode()
    return Payload(
        f"/v2/models/{name}/infer",
        {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(header))},
        header + b"".join(arrays[spec.name].tobytes() for spec in MODELS[model].inputs),
    )
