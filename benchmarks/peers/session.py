"""ONNX Runtime in Python, as the peers run it: with one thread, like the engine they are compared with."""

from __future__ import annotations

import onnxruntime

from benchmarks.models import model_file

__all__ = ["open_session"]


def open_session() -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(model_file("mlp")), options, providers=["CPUExecutionProvider"])
