"""
Which backends there are: each folder of `backends/`, what other packages bring by an entry point of the group
`kushi.backends`, and the directories of --backend-directory whose file a backend executes.

Their descriptors are read once in a process, when something about backends is asked for the first time. One that cannot
be read is the failure of the models and settings that name it, and of nothing else.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType

from ..errors import ConfigInvalid, Unsupported
from ..nearest import nearly
from .descriptor import Descriptor
from .triton_backends import PYTHON_BASED, instead_of

__all__ = [
    "GROUP",
    "add_directory",
    "bare_backend",
    "bare_files",
    "default_file",
    "descriptor_of",
    "descriptors",
    "found",
    "refusal",
]

_LOG = logging.getLogger(__name__)
_LEAST_OF_A_NAME = 4
_LAST = 1_000_000
"""Their files are looked for behind those of all others"""
_directories: list[Path] = []
GROUP = "kushi.backends"
"""Of entry points: NAME = "module:DESCRIPTOR", where NAME is the value of `backend` in config.pbtxt"""


@dataclass(frozen=True)
class Found:
    """All descriptors, in the order in which their files are looked for, and what becomes of their names"""

    all: Sequence[Descriptor]
    usable: Mapping[str, Descriptor]
    refused: Mapping[str, str]
    """The names that cannot be used, with the reason; without a descriptor where it cannot be read"""


@dataclass(frozen=True)
class _Brought:
    """A backend, and who brings it"""

    name: str
    by: str
    read: Callable[[], Descriptor]


def descriptors() -> Mapping[str, Descriptor]:
    """Those of all backends that can be used, by name, in the order in which their files are looked for"""
    return found().usable


def descriptor_of(name: str) -> Descriptor:
    """That of the backend that config.pbtxt calls `name`"""
    if why := refusal(name):
        raise Unsupported(why)
    if name not in descriptors():
        if name in PYTHON_BASED:
            how = f"put its {_backend_files()} into DIR/{name}, and start with --backend-directory=DIR"
            raise Unsupported(f"backend '{name}' is a program in Python that is not here: {how}")
        if instead := instead_of(name):
            raise Unsupported(f"backend '{name}' is native code of Triton's and not supported, use {instead}")
        expected = " or ".join(f"'{known}'" for known in descriptors())
        meant = f"did you mean '{near}'?" if (near := _meant(name)) else f"expected {expected}"
        raise Unsupported(f"backend '{name}' is not supported by this version, {meant}")
    return descriptors()[name]


def _meant(name: str) -> str | None:
    """A backend that is called so by a platform of its, by a part of its name, or nearly"""
    for known, descriptor in descriptors().items():
        is_long = min(len(name), len(known)) >= _LEAST_OF_A_NAME
        if name in descriptor.platforms or (is_long and (name in known or known in name)):
            return known
    return nearly(name.lower(), descriptors())


def _backend_files() -> str:
    return " or ".join(one.backend_file for one in found().all if one.backend_file)


def refusal(name: str) -> str | None:
    """Why a backend that is there cannot be used"""
    return found().refused.get(name)


def default_file() -> str:
    """The name that the model file of most models has, for advice"""
    return next(one.files[0] for one in found().all if one.bare_suffixes)


def bare_backend(path: Path) -> Descriptor | None:
    """The backend for which a file of such a name says all of a model that a configuration would"""
    return next((one for one in found().all if path.suffix in one.bare_suffixes), None)


def bare_files() -> str:
    """Which files these are, in words"""
    return " or ".join(f"*{suffix}" for one in found().all for suffix in one.bare_suffixes)


@cache
def found() -> Found:
    """What there is in this process"""
    brought_by: dict[str, str] = {}
    read: list[Descriptor] = []
    refused: dict[str, str] = {}
    for brought in (*_folders(), *_entry_points()):
        try:
            descriptor = brought.read()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the module of another package raises
            why = f"{type(error).__name__}: {error}"
            refused[brought.name] = f"backend '{brought.name}' of {brought.by} cannot be loaded: {why}"
            continue
        read.append(descriptor)
        other = brought_by.setdefault(descriptor.name, brought.by)
        if other != brought.by:
            refused[descriptor.name] = (
                f"backend '{descriptor.name}' is brought by {other} and by {brought.by}, expected it once"
            )
    for name, descriptor in _in_directories(read):
        if name in brought_by or name in refused:
            _LOG.warning("'%s' is left out: there is a backend '%s' already", descriptor.program, name)
        else:
            read.append(descriptor)
            brought_by[name] = str(descriptor.program)
    for why in refused.values():
        _LOG.warning("%s", why)
    read.sort(key=lambda one: (one.order, one.name))
    usable = {descriptor.name: descriptor for descriptor in read if descriptor.name not in refused}
    return Found(tuple(read), MappingProxyType(usable), MappingProxyType(refused))


def add_directory(directory: Path) -> None:
    """From now on this process has the backends of a directory: each folder with a file that a backend executes"""
    if not directory.is_dir():
        raise ConfigInvalid(
            f"backend directory '{directory}' is not there, expected a directory of NAME/{_backend_files()}"
        )
    if directory not in _directories:
        _directories.append(directory)
        found.cache_clear()


def _in_directories(known: Sequence[Descriptor]) -> Iterator[tuple[str, Descriptor]]:
    executing = [one for one in known if one.backend_file]
    for directory in _directories:
        for folder in _folders_in(directory):
            for one in executing:
                program = folder / one.backend_file
                # what cannot be looked into is none
                if os.path.isfile(program):  # noqa: PTH113 - it raises nothing
                    kinds = (("", one.backend_file),)
                    yield (
                        folder.name,
                        replace(one, name=folder.name, kinds=kinds, order=_LAST, backend_file="", program=program),
                    )


def _folders_in(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError as error:
        _LOG.warning("backend directory '%s' cannot be read: %s", directory, error.strerror)
        return []


def _folders() -> Iterator[_Brought]:
    package = import_module("..backends", __package__)
    for folder in iter_modules(package.__path__):
        if folder.ispkg:
            module = f"{package.__name__}.{folder.name}"
            yield _Brought(folder.name, f"'{module}'", partial(_of_folder, f"{module}.descriptor"))


def _of_folder(module: str) -> Descriptor:
    return _checked(import_module(module).DESCRIPTOR)


def _entry_points() -> Iterator[_Brought]:
    for point in entry_points(group=GROUP):
        by = f"package '{point.dist.name}'" if point.dist else f"'{point.value}'"
        yield _Brought(point.name, by, partial(_of_entry_point, point))


def _of_entry_point(point: EntryPoint) -> Descriptor:
    descriptor = _checked(point.load())
    if descriptor.name != point.name:
        raise ValueError(f"'{point.value}' is the descriptor of '{descriptor.name}'")
    return descriptor


def _checked(descriptor: object) -> Descriptor:
    if not isinstance(descriptor, Descriptor):
        raise TypeError(f"expected a {Descriptor.__module__}.Descriptor, got {type(descriptor)}")
    return descriptor
