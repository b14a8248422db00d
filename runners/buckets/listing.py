"""What was listed of a bucket, as the models of a repository"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..errors import ConfigInvalid
from ..repository.contents import MOST
from ..repository.versions import version_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["ListedModel", "Object", "models_of", "read_listing", "written_listing"]

_MODELS: Final = "models, form 1"
"""Another form has another name"""
_LONGEST_NAME: Final = 255
"""Bytes of a name in a folder here"""


@dataclass(frozen=True, slots=True)
class Object:
    """One that was listed"""

    path: str
    """In the repository"""
    size: int
    tag: str
    """Another one stands for another content"""


@dataclass(frozen=True)
class ListedModel:
    """The objects of one model"""

    name: str
    files: Mapping[str, Object] = field(default_factory=dict)
    """By their paths in the model's folder"""
    folders: frozenset[str] = frozenset()
    """Those of its folders that were listed themselves, which may be empty, and those that files lie in"""
    fault: str = ""
    """Why it cannot be a folder here"""

    @property
    def versions(self) -> list[int]:
        """As far as their names are numbers"""
        return sorted(number for folder in self.folders if (number := version_number(folder)) is not None)


def models_of(objects: Iterable[Object]) -> dict[str, ListedModel]:
    """The models, by name; objects that lie beside their folders are none of theirs"""
    files: dict[str, dict[str, Object]] = {}
    folders: dict[str, set[str]] = {}
    for one in objects:
        name, slash, path = one.path.partition("/")
        if not name or name.startswith("."):
            continue
        if not slash:
            # the mark that tools leave for a folder is an empty object of its name
            if one.size == 0:
                folders.setdefault(name, set())
            continue
        of_model = files.setdefault(name, {})
        # a mark of a folder beside a file of its name says nothing
        if path not in of_model or one.size:
            of_model[path] = one
        folders.setdefault(name, set()).update(_around(path))
    return {name: _model(name, files.get(name, {}), around) for name, around in sorted(folders.items())}


def _model(name: str, files: dict[str, Object], folders: set[str]) -> ListedModel:
    marks = {path for path, one in files.items() if one.size == 0 and (path in folders or path.isdecimal())}
    kept = {path: one for path, one in files.items() if path not in marks}
    folders = folders | marks
    return ListedModel(name, kept, frozenset(folders), _fault(name, kept, folders))


def _around(path: str) -> list[str]:
    """All folders that it lies in"""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _fault(name: str, files: Mapping[str, Object], folders: set[str]) -> str:
    if len(files) > MOST:
        return f"it has {len(files)} objects, expected at most {MOST}"
    for path in (*files, *folders):
        for part in (name, *path.split("/")):
            if not _can_be_a_file(part):
                return f"object {f'{name}/{path}'!r} cannot be a file: a part of its name is {part!r}"
    if both := sorted(files.keys() & folders):
        return f"object '{name}/{both[0]}' lies where other objects have a folder"
    return ""


def _can_be_a_file(name: str) -> bool:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return False
    return name not in {"", ".", ".."} and "\0" not in name and size <= _LONGEST_NAME


def written_listing(models: Mapping[str, ListedModel]) -> str:
    """As a text that is read again"""
    return json.dumps(
        {
            _MODELS: {
                name: {
                    "files": {path: [one.path, one.size, one.tag] for path, one in model.files.items()},
                    "folders": sorted(model.folders),
                    "fault": model.fault,
                }
                for name, model in models.items()
            },
        }
    )


def read_listing(text: str) -> dict[str, ListedModel]:
    """What was written; raises where that is not what this is"""
    try:
        document = json.loads(text)
        models = document[_MODELS]
        return {
            name: ListedModel(
                name,
                {path: Object(*one) for path, one in model["files"].items()},
                frozenset(model["folders"]),
                model["fault"],
            )
            for name, model in models.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigInvalid(f"what was listed before cannot be read: {error}") from None
