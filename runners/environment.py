"""The only reader of the environment, and its only writer."""

import os
import site
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "cache_directory",
    "environment_of_child",
    "environment_with",
    "home",
    "not_set",
    "path_with",
    "runtime_directory",
    "set_variable",
    "variable",
    "variables",
    "visible_gpus",
]


def variable(name: str) -> str:
    """Of another program; "" where it does not exist"""
    return os.environ.get(name, "")


def home() -> Path:
    """The directory of this user"""
    return Path.home()


def variables(prefix: str) -> dict[str, str]:
    """The variables whose names begin with `prefix`, in large or small letters"""
    return {name: value for name, value in os.environ.items() if name.upper().startswith(prefix)}


def not_set(names: Iterable[str]) -> list[str]:
    """Those of these variables that do not exist, or are empty"""
    return [name for name in names if not os.environ.get(name)]


def visible_gpus() -> str | None:
    """The GPUs that CUDA shows to this process, as CUDA reads it; None: all"""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def runtime_directory() -> Path | None:
    """The directory that the system keeps for sockets of this user: XDG_RUNTIME_DIR, where it can be written to"""
    directory = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(directory) if directory and os.access(directory, os.W_OK) else None


def cache_directory() -> Path:
    """Where this user keeps what can be made again"""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kushi"


def path_with(name: str, directory: Path) -> str:
    """A variable that lists directories, with one more in front"""
    return os.pathsep.join(filter(None, (str(directory), os.environ.get(name))))


def set_variable(name: str, value: str) -> None:
    """For a library that this process loads afterwards"""
    os.environ[name] = value


def environment_of_child(root: Path) -> dict[str, str]:
    """That of this process, for one that imports packages from `root` as well"""
    if str(root) in site.getsitepackages():
        # There they are found anyway; on this path they would stand before the standard library.
        return {**os.environ}
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def environment_with(**more: str) -> dict[str, str]:
    """That of this process, with `more` in it"""
    return {**os.environ, **more}
