"""A trained torch module becomes an ONNX file: dynamic batch, weights inside, no trace of the machine that trained it.

What always holds: a file that `export_onnx` leaves behind passed the ONNX checker and answers what torch answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def export_onnx(
    network: nn.Module, examples: Mapping[str, torch.Tensor], output_names: Sequence[str], path: Path
) -> float:
    """Answers the largest difference between ONNX Runtime and torch on `examples` and on the first row of each."""
    network.eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    unchecked = path.with_suffix(".unchecked")
    rows = torch.export.Dim("N", min=1, max=MAX_BATCH)
    torch.onnx.export(
        network,
        tuple(examples.values()),
        str(unchecked),
        dynamo=True,
        opset_version=OPSET,
        input_names=list(examples),
        output_names=list(output_names),
        dynamic_shapes=tuple({0: rows} for _ in examples),
        external_data=False,
        verbose=False,
    )
    _strip(unchecked)
    first_rows = {name: example[:1] for name, example in examples.items()}
    difference = max(_difference(network, unchecked, compared) for compared in (examples, first_rows))
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


def _difference(network: nn.Module, path: Path, examples: Mapping[str, torch.Tensor]) -> float:
    with torch.no_grad():
        expected = network(*examples.values())
    expected = expected if isinstance(expected, tuple) else (expected,)
    answered = open_session(path).run(None, {name: example.numpy() for name, example in examples.items()})
    return max(float(np.abs(ours - torchs.numpy()).max()) for ours, torchs in zip(answered, expected, strict=True))
