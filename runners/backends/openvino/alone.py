"""A network in OpenVINO's own Python package, as a script would ask it"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openvino

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ...repository.messages import ModelConfig

__all__ = ["open_alone"]


def open_alone(
    path: Path,
    config: ModelConfig,
    *,
    threads: int,
    gpu: int | None,  # noqa: ARG001 - it has none of NVIDIA's
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """On the device of the configuration, for the shapes that it is asked with"""
    core = openvino.Core()
    network = core.read_model(path)
    device = _text(config, "TARGET_DEVICE") or "CPU"
    precision = "bf16" if _text(config, "HINT_BF16").upper() == "YES" else "f32"
    properties = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
    if device == "CPU":
        properties["INFERENCE_NUM_THREADS"] = str(threads)
    outputs = [tensor.name for tensor in config.output]
    compiled: dict[tuple[tuple[int, ...], ...], Any] = {}

    def ask(row: Mapping[str, Any]) -> Mapping[str, Any]:
        shapes = tuple(tuple(array.shape) for array in row.values())
        if shapes not in compiled:
            network.reshape(dict(zip(row, map(list, shapes), strict=True)))
            compiled[shapes] = core.compile_model(network, device, properties)
        answered = compiled[shapes](dict(row))
        return {name: answered[name].copy() for name in outputs}

    return ask


def _text(config: ModelConfig, key: str) -> str:
    return config.parameters[key].string_value.strip() if key in config.parameters else ""
