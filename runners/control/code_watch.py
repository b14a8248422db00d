"""
Models that are loaded again when their code changes, for whoever writes it.

A thread looks at the files of each model a few times a second, which works on every file system. A model is loaded when
they differ from those of its last load and have stood still from one look to the next, so that what an editor has half
written is not read. Whether that load succeeds or fails, the next one waits for the next change.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ..environment import set_variable
from ..errors import KushiError, ModelNotReady, ModelUnavailable, ShuttingDown
from ..repository.contents import MOST
from ..repository.discovery import descriptor_of
from .watched import Watched

if TYPE_CHECKING:
    import weakref

    from ..repository.layout import ModelSource
    from .load import Load

__all__ = ["CodeWatch"]

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 0.25
_PATIENCE_SECONDS = 10.0


class _Control(Protocol):
    def load_again(self, name: str) -> None: ...


class CodeWatch:
    """The models of a controller whose code is looked at. Processes that are started from now on write no bytecode"""

    def __init__(self) -> None:
        self._models: dict[str, Watched] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        # of two files of one second and one size, what was compiled of the first would be taken for the second
        set_variable("PYTHONDONTWRITEBYTECODE", "1")

    def watch(self, load: Load, source: ModelSource, backend: str) -> None:
        """A load of the model begins, which reads its files as they are now; it may be given up meanwhile"""
        if suffix := descriptor_of(backend).code_suffix:
            watched = load.run(source.path, partial(Watched, source.path, suffix=suffix))
            self._models[source.name] = watched
            if watched.settled.has_more:
                _LOG.warning("'%s': of its files and directories, %d are watched, and no others", source.name, MOST)

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
                if changes := watched.changes():
                    _LOG.info("'%s' is loaded again: '%s' has changed", name, changes[0])
                    _load(alive, name, watched)
                del alive


def _load(control: _Control, name: str, watched: Watched) -> None:
    try:
        control.load_again(name)
    except ShuttingDown:
        pass
    except KushiError as error:
        if isinstance(error, ModelNotReady) and not isinstance(error, ModelUnavailable):
            # somebody else changes it just now
            watched.forget()
        else:
            _LOG.warning("'%s' is not loaded again: a version that served goes on as it was", name)
    except Exception:  # noqa: BLE001 - the thread has other models to look at
        _LOG.exception("'%s' is not loaded again", name)
