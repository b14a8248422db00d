"""The half-precision form of a model, of which a plan is built"""

from pathlib import Path

from ..optimize.forms import make

__all__ = ["halved"]


def halved(source: Path, scratch: Path) -> Path:
    """Written below `scratch`; its inputs and outputs stay as they are"""
    directory = scratch / "halved"
    directory.mkdir()
    make("fp16", source, directory, ())
    return directory / "model.onnx"
