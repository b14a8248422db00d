"""A trained torch module becomes an ONNX file: dynamic batch, weights inside, no trace of the machine that trained it.

What always holds: a file that `export_onnx` leaves behind passed the ONNX checker and answers what torch answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn

__all__ = ["export_onnx", "open_session"]

MAX_BATCH = 1024
OPSET = 18
TOLERANCE = 1e-4


def open_session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def export_onnx(network: nn.Module, example: torch.Tensor, path: Path, *, input_name: str, output_name: str) -> float:
    """Answers the largest difference between ONNX Runtime and torch on `example` and on its first row."""
    network.eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    unchecked = path.with_suffix(".unchecked")
    torch.onnx.export(
        network,
        (example,),
        str(unchecked),
        dynamo=True,
        opset_version=OPSET,
        input_names=[input_name],
        output_names=[output_name],
        dynamic_shapes=({0: torch.export.Dim("N", min=1, max=MAX_BATCH)},),
        external_data=False,
        verbose=False,
    )
    _strip(unchecked)
    difference = max(_difference(network, unchecked, rows) for rows in (example, example[:1]))
    if difference > TOLERANCE:
        unchecked.unlink()
        raise SystemExit(f"{path}: onnxruntime and torch differ by {difference:.2e}, expected at most {TOLERANCE:.0e}")
    unchecked.replace(path)
    return difference


def _strip(path: Path) -> None:
    """The exporter records Python stack traces in every node: they bloat the file and name the machine that trained."""
    model = onnx.load(str(path))
    model.doc_string = ""
    model.graph.doc_string = ""
    del model.graph.metadata_props[:]
    graph = model.graph
    parts: list[Any] = [*graph.node, *graph.value_info, *graph.initializer, *graph.input, *graph.output]
    for part in parts:
        part.doc_string = ""
        del part.metadata_props[:]
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(path))


def _difference(network: nn.Module, path: Path, rows: torch.Tensor) -> float:
    session = open_session(path)
    with torch.no_grad():
        expected = network(rows).numpy()
    (answered,) = session.run(None, {session.get_inputs()[0].name: rows.numpy()})
    return float(np.abs(answered - expected).max())
