"""A service around one model: around pictures where the model takes them, else around arrays"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from ..engine import Engine
from ..errors import InvalidInput
from ..settings import EngineOptions, LogOptions
from . import arrays, pictures
from .folder import Names, new_folder, write
from .model import Described, described

__all__ = ["write_service"]

_SAMPLE: Final = Path(__file__).with_name("templates") / "colours"


def write_service(folder: Path, model: Path | None = None) -> None:
    """
    folder: a new one, or an empty one
    model: a file as `kushi serve` takes it, or a folder of a model as in a repository; without it, a small one that
        tells colours apart stands in for it
    """
    names = Names(folder)
    with new_folder(folder) as made:
        about = _with_model(made / "model_repository", model or _SAMPLE)
        written = pictures.written(about, names, is_sample=model is None)
        write(made, names, written or arrays.written(about, names))


def _with_model(repository: Path, model: Path) -> Described:
    """Of the model, which is in the repository then"""
    model = model.absolute()
    if not model.exists():
        raise InvalidInput(f"'{model}': there is no such file")
    if model.is_dir() and not any(path.name == "config.pbtxt" or path.name.isdigit() for path in model.iterdir()):
        raise InvalidInput(
            f"'{model}' is no folder of a model: expected 'config.pbtxt' in it, or a version such as '1'"
        )
    name = model.name if model.is_dir() else model.stem
    if model.is_dir():
        shutil.copytree(model, repository / name)
    else:
        version = repository / name / "1"
        version.mkdir(parents=True)
        shutil.copy(model, version / f"model{model.suffix}")
        # weights that lie beside it, as exporters write them
        for suffix in (".data", "_data"):
            beside = model.with_name(model.name + suffix)
            if beside.is_file():
                shutil.copy(beside, version)
    with Engine(repository, options=EngineOptions(exit_on_error=False, log=LogOptions(info=False))) as engine:
        for failure in engine.failures.values():
            raise failure
        return described(engine.get_model_metadata(name))
