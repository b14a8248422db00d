"""What lies in sight where a model is not where it has to be, and what a file is that is no model: for messages"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ..errors import ConfigInvalid
from .discovery import found

__all__ = ["check_content", "in_sight", "is_model_file", "lies_beside"]

_VERSION_IN = re.compile(r"\D*0*([1-9][0-9]*)\D*", re.ASCII)
_HEAD_BYTES = 256
_MOST_NAMES = 3
_POINTER = b"version https://git-lfs"


def is_model_file(path: Path) -> bool:
    """Whether its name is like that of a model"""
    return path.suffix in {Path(file).suffix for one in found().all for file in one.files} - {""}


def in_sight(model: Path, version: Path | None) -> str:
    """What to do with what lies near the place where the file of a model is missing; "" where there is nothing"""
    for path in _models_in(model):
        return f"'{path}' lies beside the versions, move it to '{version or model / '1'}'"
    for directory in sorted(path for path in model.iterdir() if path.is_dir()):
        number = _VERSION_IN.fullmatch(directory.name)
        if number and number[1] != directory.name and list(_models_in(directory)):
            return f"'{directory}' is no version, rename it '{number[1]}'"
    names = [path.name for path in _models_in(version)] if version else []
    if names:
        return _instead(names)
    return ""


def lies_beside(path: Path) -> str:
    """The same in one directory, to stand behind a text that `path` is not there"""
    names = _chosen_among(path.name)
    suffixes = {path.suffix, *(Path(name).suffix for name in names)}
    directory = path.parent
    there = sorted(os.listdir(directory)) if directory.is_dir() else []  # noqa: PTH208 - names alone
    if others := [name for name in there if Path(name).suffix in suffixes - {""}]:
        return f": {_instead(others)}"
    return f", nor {' or '.join(names)}" if names else ""


def _chosen_among(name: str) -> list[str]:
    """The other default files of the backend that has this one, where a parameter chooses"""
    for one in found().all:
        names = [*one.files, *(file for files in one.files_of.values() for file in files.values())]
        if one.files_of and name in names:
            return sorted({*names} - {name})
    return []


def _instead(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_MOST_NAMES])
    return f'{shown} lies there: rename it, or say default_model_filename: "{names[0]}" in config.pbtxt'


def check_content(path: Path) -> None:
    """Raises where a file is something that people often have in the place of a model"""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES).lstrip()
    if not head:
        raise ConfigInvalid(f"'{path}' is empty")
    if head.startswith(_POINTER):
        raise ConfigInvalid(f"'{path}' is a pointer of Git LFS and not the model itself: git lfs pull")
    if head[:14].lower().startswith((b"<!doctype html", b"<html")):
        raise ConfigInvalid(f"'{path}' is a page of HTML and no model: look at what was downloaded")


def _models_in(directory: Path) -> Iterator[Path]:
    names = sorted(os.listdir(directory)) if directory.is_dir() else []  # noqa: PTH208 - names alone
    return (directory / name for name in names if is_model_file(directory / name))
