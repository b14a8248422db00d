"""How large the numbers get on the way through a model"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..differences import largest
from .forms import Reader, in_silence

__all__ = ["note_on_halves"]

_LARGEST_HALF = float(np.finfo(np.float16).max)


def note_on_halves(source: Path, scratch: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """What half precision cannot hold of these rows; empty where it holds all"""
    try:
        with in_silence():
            most = _largest(source, scratch, rows)
    except Exception as error:  # noqa: BLE001 - the tool raises whatever its insides meet
        return f"how large its numbers get on the way is not known: {error}"
    if most <= _LARGEST_HALF:
        return ""
    return (
        f"on the way its numbers get as large as {most:.1e}, and half precision ends at {_LARGEST_HALF:.0f}: a CPU "
        "computes with more and does not show it, so compare the form on the GPU that is to serve it"
    )


def _largest(source: Path, scratch: Path, rows: Sequence[Mapping[str, Any]]) -> float:
    calibrate = import_module("onnxruntime.quantization.calibrate")
    calibrator = calibrate.create_calibrator(source, augmented_model_path=str(scratch / "ranges.onnx"))
    calibrator.collect_data(Reader(rows))
    ranges = (numbers for _, data in calibrator.compute_data().items() for numbers in data.range_value)
    # an infinity is no number that got too large: masks have some, and so has what the tool says of an empty tensor
    return max((largest(numbers) for numbers in ranges), default=0.0)
