"""
Models that are loaded again when their code changes, for whoever writes it.

A thread looks at the files of each model a few times a second, which works on every file system. A model is loaded when
they differ from those of its last load and have stood still from one look to the next, so that what an editor has half
written is not read. Whether that load succeeds or fails, the next one waits for the next change.
"""

from __future__ import annotations

import logging
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ..environment import set_variable
from ..errors import KushiError, ModelNotReady, ModelUnavailable, ShuttingDown
from ..repository.discovery import descriptor_of
from ..repository.files import ENVIRONMENT_MARKS
from ..wanted import check_wanted

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ..repository.layout import ModelSource
    from .load import Load

__all__ = ["CodeWatch"]

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 0.25
_PATIENCE_SECONDS = 10.0
_MOST = 10_000
"""Files of a model that are looked at, and directories they are looked for in"""

_State = tuple[int, int, int]
"""What changes when a file does"""
_Files = dict[str, _State]


class _Control(Protocol):
    def load(self, name: str) -> None: ...


class _Watched:
    """The code of one model"""

    def __init__(self, source: ModelSource, suffix: str) -> None:
        self._directories = (source.path, *source.versions.values())
        self._suffix = suffix
        self._loaded = self._seen = self._look()

    def has_changed(self) -> str:
        """One of the files that have changed, once they stand still; they count as loaded then"""
        before, self._seen = self._seen, self._look()
        if self._seen == self._loaded or self._seen != before:
            return ""
        different = dict(self._seen.items() ^ self._loaded.items())
        self._loaded = self._seen
        return min(different)

    def loads_again(self) -> None:
        """The change has not been dealt with"""
        self._loaded = {}

    def _look(self) -> _Files:
        found: dict[str, _State | None] = {}
        self.has_more = False
        # a version that is no link comes with its model, and once more
        for path, state in _files(self._directories, self._suffix):
            if len(found) == _MOST and path not in found:
                self.has_more = True
                break
            found[path] = state
        return {path: state for path, state in found.items() if state}


class CodeWatch:
    """The models of a controller whose code is looked at. Processes that are started from now on write no bytecode"""

    def __init__(self) -> None:
        self._models: dict[str, _Watched] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        # of two files of one second and one size, what was compiled of the first would be taken for the second
        set_variable("PYTHONDONTWRITEBYTECODE", "1")

    def watch(self, load: Load, source: ModelSource, backend: str) -> None:
        """A load of the model begins, which reads its files as they are now; it may be given up meanwhile"""
        if suffix := descriptor_of(backend).code_suffix:
            watched = load.run(source.path, partial(_Watched, source, suffix))
            self._models[source.name] = watched
            if watched.has_more:
                _LOG.warning("'%s': of its files and directories, %d are watched, and no others", source.name, _MOST)

    def forget(self, name: str) -> None:
        """The model is not to be loaded any more"""
        self._models.pop(name, None)

    def start(self, control: weakref.ref[_Control]) -> None:
        """Looks from now on, until this is closed or nobody refers to the controller"""
        self._thread = threading.Thread(target=self._run, args=(control,), name="kushi-reload", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; a load that it waits for has been given up"""
        self._closed.set()
        # the last reference to a controller may go on this very thread
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE_SECONDS)

    def _run(self, control: weakref.ref[_Control]) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            for name, watched in [*self._models.items()]:
                if self._closed.is_set() or (alive := control()) is None:
                    return
                if file := watched.has_changed():
                    _LOG.info("'%s' is loaded again: '%s' has changed", name, file)
                    _load(alive, name, watched)
                del alive


def _load(control: _Control, name: str, watched: _Watched) -> None:
    try:
        control.load(name)
    except ShuttingDown:
        pass
    except KushiError as error:
        if isinstance(error, ModelNotReady) and not isinstance(error, ModelUnavailable):
            # somebody else changes it just now
            watched.loads_again()
        else:
            _LOG.warning("'%s' is not loaded again: a version that served goes on as it was", name)
    except Exception:  # noqa: BLE001 - the thread has other models to look at
        _LOG.exception("'%s' is not loaded again", name)


def _files(directories: Iterable[Path], suffix: str) -> Iterator[tuple[str, _State | None]]:
    """And the directories that they are in, without a state"""
    for directory in directories:
        for place, inner, files in os.walk(directory):
            check_wanted()
            yield place, None
            if any(mark in (*inner, *files) for mark in ENVIRONMENT_MARKS):
                inner.clear()
                continue
            inner[:] = sorted(name for name in inner if not name.startswith(".") and name != "__pycache__")
            for file in sorted(files):
                if file.endswith(suffix) and not file.startswith("."):
                    path = os.path.join(place, file)  # noqa: PTH118 - as os.walk has them
                    try:
                        stat = os.stat(path)  # noqa: PTH116 - as above
                    except OSError:
                        continue
                    yield path, (stat.st_mtime_ns, stat.st_size, stat.st_ino)
