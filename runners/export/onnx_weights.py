"""An ONNX file on disk, with the weights in a file beside it where they are too large for one"""

from pathlib import Path

import onnx

__all__ = ["save"]

# protocol buffers end at 2 GiB, with the graph around the weights
_SINGLE_FILE_BYTES = 1_900_000_000


def save(model: onnx.ModelProto, path: Path) -> None:
    """Writes the file; whoever may read it may read the weights, too"""
    large = sum(len(weights.raw_data) for weights in model.graph.initializer) > _SINGLE_FILE_BYTES
    weights = path.with_name(f"{path.name}.data")
    onnx.save(model, path, save_as_external_data=large, location=weights.name)
    if large:
        # ONNX lets only its owner read it
        weights.chmod(path.stat().st_mode)
