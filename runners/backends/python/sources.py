"""
The Python files of a model as they are when it is loaded, for all processes of that load. One that is started again
later would else run what lies there by then: files that nobody has loaded yet, or that no load has taken.
"""

import base64
import json
import logging
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ...errors import ConfigInvalid
from ...repository.files import is_environment, read_file
from ...worker.kept_sources import is_apart

__all__ = ["Sources", "packed", "sources"]

_LOG = logging.getLogger(__name__)
_MOST_FILES = 1000
_MOST_ENTRIES = 20_000
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Sources:
    files: Mapping[str, str]
    """By their paths, each byte a character"""
    directories: Sequence[str] = ()
    """Those of which all Python files are there"""
    left: Sequence[str] = ()
    """But for these folders and files, which are read as they are imported: links, environments, what is unreadable"""


def sources(file: Path, directory: Path) -> Sources:
    """The file of the model, with what lies beside it and in the directory of the model; of much, the file alone"""
    try:
        kept = {str(file): _read(file)}
    except (ConfigInvalid, OSError):
        # whoever executes it says what is wrong
        return Sources({})
    try:
        beside, left = _beside(file, directory)
    except _TooMuch:
        _LOG.info("'%s': a process that is started again reads what lies beside it anew: it is much", file)
        return Sources(kept)
    return Sources({**kept, **beside}, [str(file.parent), str(directory)], left)


def packed(found: Sources) -> str:
    """For a message to each process: text that needs no escapes, whatever the files have"""
    return base64.b64encode(zlib.compress(json.dumps(asdict(found)).encode(), 1)).decode() if found.files else ""


class _TooMuch(Exception):
    """Some of it would be worse than none: files of two loads do not go together"""


def _beside(file: Path, directory: Path) -> tuple[Mapping[str, str], Sequence[str]]:
    """What is kept, and what is not"""
    found, left, room = dict[str, str](), list[str](), _MOST_BYTES
    for path in _files(file, directory, left):
        try:
            found[str(path)] = text = _read(path)
        except (ConfigInvalid, OSError):
            # whoever imports it says what is wrong
            left.append(str(path))
            continue
        room -= len(text)
        if room < 0 or len(found) > _MOST_FILES:
            raise _TooMuch
    return found, left


def _read(path: Path) -> str:
    return read_file(path, "Python file").decode("latin-1")


def _files(file: Path, directory: Path, left: list[str]) -> Iterator[Path]:
    entries = 0
    for root in dict.fromkeys((file.parent, directory)):
        for place, folders, files in os.walk(root):
            entries += len(folders) + len(files)
            if entries > _MOST_ENTRIES:
                raise _TooMuch
            # what is an environment is no part of the model either
            folders[:] = [name for name in folders if not is_apart(name)]
            out = [name for name in folders if Path(place, name).is_symlink() or is_environment(Path(place, name))]
            left.extend(str(Path(place, name)) for name in out)
            folders[:] = [name for name in folders if name not in out]
            yield from (Path(place, name) for name in sorted(files) if name.endswith(".py"))
