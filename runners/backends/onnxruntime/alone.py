"""An ONNX model in ONNX Runtime's own Python package, as a script would ask it"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnxruntime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ...repository.messages import ModelConfig

__all__ = ["open_alone"]


def open_alone(
    path: Path, config: ModelConfig, *, threads: int, gpu: int | None
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Without accelerators: on the CPU, or by CUDA on a GPU"""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    for name in config.model_operations.op_library_filename:
        beside = path.parent / name
        options.register_custom_ops_library(str(beside if beside.is_file() else path.parent.parent / name))
    providers = [("CUDAExecutionProvider", {"device_id": gpu})] if gpu is not None else []
    session = onnxruntime.InferenceSession(path, options, providers=[*providers, "CPUExecutionProvider"])
    outputs = [tensor.name for tensor in config.output]
    return lambda row: dict(zip(outputs, session.run(outputs, dict(row)), strict=True))
