"""
The Python files of a model as they are when it is loaded, for all processes of that load. One that is started again
later would else run what lies there by then: files that nobody has loaded yet, or that no load has taken.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...errors import ConfigInvalid
from ...repository.files import read_file

__all__ = ["sources"]

_LOG = logging.getLogger(__name__)
_MOST_FILES = 1000
_MOST_ENTRIES = 20_000
_MOST_BYTES = 4 * 1024 * 1024


def sources(file: Path, directory: Path) -> Mapping[str, str]:
    """
    By their paths, each byte a character: the file of the model, and what lies beside it and in the model's directory.
    Where that is much, the file alone
    """
    try:
        kept = {str(file): _read(file)}
    except (ConfigInvalid, OSError):
        # whoever executes it says what is wrong
        return {}
    beside = dict(kept)
    left = _MOST_BYTES
    for path in _beside(file, directory):
        try:
            beside[str(path)] = text = _read(path)
        except (ConfigInvalid, OSError):
            continue
        left -= len(text)
        if left < 0 or len(beside) > _MOST_FILES:
            _LOG.info("'%s': a process that is started again reads what lies beside it anew: it is much", file)
            return kept
    return beside


def _read(path: Path) -> str:
    return read_file(path, "Python file").decode("latin-1")


def _beside(file: Path, directory: Path) -> Iterator[Path]:
    entries = 0
    roots = [file.parent] if file.parent == directory else [file.parent, directory]
    for root in roots:
        for place, folders, files in os.walk(root):
            entries += len(folders) + len(files)
            if entries > _MOST_ENTRIES:
                return
            # other versions are no packages, and what is hidden or an environment is no part of the model
            folders[:] = [name for name in folders if name.isidentifier() and name != "__pycache__"]
            yield from (Path(place, name) for name in sorted(files) if name.endswith(".py"))
