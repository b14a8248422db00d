"""A service around one model: around pictures where the model takes them, else around arrays"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from ..engine import Engine
from ..errors import ConfigInvalid, InvalidInput
from ..repository.bare_copy import copy_bare
from ..repository.discovery import bare_backend, bare_files
from ..settings import EngineOptions, LogOptions
from . import arrays, pictures
from .folder import Names, new_folder, write
from .model import Described, described

__all__ = ["write_service"]

_SAMPLE: Final = Path(__file__).with_name("templates") / "colours"
# what lies in folders and is of no model
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", ".git")


def write_service(folder: Path, model: Path | None = None) -> None:
    """
    folder: a new one, or an empty one
    model: a file as `kushi serve` takes it, or a folder of a model as in a repository; without it, a small one that
        tells colours apart stands in for it
    """
    names = Names(folder)
    source = _source(model or _SAMPLE, folder)
    with new_folder(folder) as made:
        about = _with_model(made / "model_repository", source)
        written = pictures.written(about, names, is_sample=model is None)
        write(made, names, written or arrays.written(about, names))


def _source(model: Path, folder: Path) -> Path:
    """The model, which can be copied"""
    # its own name, also where it is a link
    model = Path(os.path.abspath(model))  # noqa: PTH100 - the names of links stay
    if not model.exists():
        raise InvalidInput(f"'{model}': there is no such file")
    if model.is_dir():
        if not any(path.name == "config.pbtxt" or path.name.isdigit() for path in model.iterdir()):
            raise InvalidInput(
                f"'{model}' is no folder of a model: expected 'config.pbtxt' in it, or a version such as '1'"
            )
        if folder.resolve().is_relative_to(model.resolve()):
            raise InvalidInput(f"'{folder}' lies in the folder of the model: a new service goes elsewhere")
    elif not bare_backend(model) or model.name.startswith("."):
        raise InvalidInput(
            f"'{model}' is no model: expected an {bare_files()} file, or a folder as in a model repository"
        )
    return model


def _with_model(repository: Path, model: Path) -> Described:
    """Of the model, which is in the repository then"""
    name = model.name if model.is_dir() else model.stem
    try:
        _copy(model, repository / name)
    except (OSError, shutil.Error) as error:
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        raise InvalidInput(f"'{model}' cannot be copied: {reason}") from error
    with Engine(repository, options=EngineOptions(exit_on_error=False, log=LogOptions(info=False))) as engine:
        for failure in engine.failures.values():
            copied = repository / name if model.is_dir() else repository / name / "1" / f"model{model.suffix}"
            text = str(failure).replace(str(copied), str(model))
            raise ConfigInvalid(f"{text}. What lies beside its file goes with it where --model names a folder")
        about = described(engine.get_model_metadata(name), engine.get_model_config(name))
    for compiled in repository.rglob("__pycache__"):
        shutil.rmtree(compiled)
    return about


def _copy(model: Path, place: Path) -> None:
    if model.is_dir():
        shutil.copytree(model, place, ignore=_LEFT_OUT)
        return
    copy_bare(model, place / "1")
