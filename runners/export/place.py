"""
Where an exported model goes: <repository>/<model>/<version>. It is made complete in a hidden directory of the same file
system, and moved at the end: whoever looks at the repository sees a whole version or none.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import ConfigInvalid, InvalidInput
from ..integers import integer
from ..repository.files import is_within
from ..repository.layout import check_model_name

__all__ = ["Place", "choose", "stage"]


@dataclass(frozen=True)
class Place:
    """The directory of a model, and the version that is written"""

    directory: Path
    version: int

    @property
    def config(self) -> Path:
        """The model's configuration: one that is there stays as it is"""
        return self.directory / "config.pbtxt"

    @property
    def files(self) -> Path:
        """The version's directory"""
        return self.directory / str(self.version)


def choose(directory: Path, version: int | Literal["next"], *, force: bool) -> Place:
    """The place for a version of the model `directory`, which must be free or may be replaced"""
    check_model_name(directory.name)
    present = _versions(directory)
    number = max(present, default=0) + 1 if version == "next" else version
    if number < 1:
        raise InvalidInput(f"version {number}: versions of models are numbers from 1")
    place = Place(directory, number)
    if place.files.exists() and not force:
        raise InvalidInput(f"'{place.files}' exists: --force replaces it, --version next takes {max(present) + 1}")
    return place


@contextmanager
def stage(place: Place) -> Iterator[Place]:
    """
    The same place in a repository of its own, with the configuration that is there and the files that it names; the
    version comes in when all is well, and a configuration where there was none
    """
    ground = next(parent for parent in place.directory.absolute().parents if parent.exists())
    with tempfile.TemporaryDirectory(prefix=f".{place.directory.name}-", dir=ground) as repository:
        staged = Place(Path(repository) / place.directory.name, place.version)
        staged.files.mkdir(parents=True)
        if place.directory.exists():
            _bring_files(place, staged)
        yield staged
        _publish(staged, place)


def _bring_files(place: Place, staged: Place) -> None:
    """All but the versions: labels, samples, what warms it up, other forms of the configuration"""
    if place.config.exists():
        shutil.copyfile(place.config, staged.config)
    for path in place.directory.iterdir():
        if path.name != place.config.name and integer(path.name) is None:
            _bring(path, staged.directory / path.name, place, staged)


def _bring(source: Path, target: Path, place: Place, staged: Place) -> None:
    """A copy, since an engine refuses links out of a model's directory; such links lead where they led before"""
    inside = is_within(source, place.directory)
    real = Path(os.path.realpath(source))
    readable = os.access(source, os.R_OK)
    if inside and readable and source.is_file():
        shutil.copyfile(source, target)
    elif inside and source.is_symlink():
        target.symlink_to(staged.directory / real.relative_to(os.path.realpath(place.directory)))
    elif inside and readable and source.is_dir():
        target.mkdir()
        for path in source.iterdir():
            _bring(path, target / path.name, place, staged)
    else:
        # a pipe, or what is for others
        target.symlink_to(real)


def _publish(staged: Place, place: Place) -> None:
    if not place.directory.exists():
        place.directory.parent.mkdir(parents=True, exist_ok=True)
        staged.directory.rename(place.directory)
        return
    if not place.config.exists():
        staged.config.rename(place.config)
    replaced = staged.directory.with_name(f"{staged.directory.name}-replaced")
    if place.files.exists():
        place.files.rename(replaced)
    try:
        staged.files.rename(place.files)
    except OSError:
        if replaced.exists():
            replaced.rename(place.files)
        raise


def _versions(directory: Path) -> list[int]:
    if not directory.exists():
        return []
    if not directory.is_dir():
        raise ConfigInvalid(f"'{directory}' is a file, expected the directory of a model")
    numbers = [number for path in directory.iterdir() if (number := integer(path.name)) is not None]
    inner = [path.name for path in directory.iterdir() if path.is_dir() and (path / "1").is_dir()]
    if inner and not numbers:
        raise ConfigInvalid(f"'{directory}' holds models, as '{inner[0]}': expected '{directory / 'NAME'}'")
    return numbers
