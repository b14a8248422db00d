"""A model file by itself, copied to where a repository has it, with the weights that lie beside it"""

import shutil
from pathlib import Path

from ..errors import InvalidInput
from .discovery import bare_backend

__all__ = ["copy_bare"]


def copy_bare(model: Path, version: Path) -> str:
    """Into the directory of a version; answers the name of the file there"""
    name = _default_name(model)
    try:
        version.mkdir(parents=True, exist_ok=True)
        shutil.copy(model, version / name)
        for beside, there in _weights(model, name).items():
            if model.with_name(beside).is_file():
                shutil.copy(model.with_name(beside), version / there)
    except OSError as error:
        raise InvalidInput(f"'{model}' cannot be copied: {error.strerror}") from error
    return name


def _default_name(model: Path) -> str:
    """Under which it is found without a configuration, where there is one with its ending"""
    backend = bare_backend(model)
    named = [] if backend is None else [*backend.files, *(f for of in backend.files_of.values() for f in of.values())]
    return next((name for name in named if Path(name).suffix == model.suffix), f"model{model.suffix}")


def _weights(model: Path, name: str) -> dict[str, str]:
    """As exporters write them; an ONNX file names its own"""
    beside = {f"{model.name}.data": f"{model.name}.data", f"{model.name}_data": f"{model.name}_data"}
    if model.suffix == ".xml":
        beside[f"{model.stem}.bin"] = Path(name).with_suffix(".bin").name
    return beside
