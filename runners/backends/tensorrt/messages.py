"""What the library says while it works"""

import logging
import threading
from typing import Any

__all__ = ["Messages"]

_LOG = logging.getLogger(__name__)
_LEVELS = {
    "INTERNAL_ERROR": logging.ERROR,
    "ERROR": logging.ERROR,
    "WARNING": logging.WARNING,
    "INFO": logging.DEBUG,
}


class Messages:
    """Passes on what it says, and keeps the last error of each thread: its functions answer with None alone"""

    def __init__(self, library: str) -> None:
        self._library = library
        self._last = threading.local()
        self._last_of_all = ""

    def log(self, severity: Any, msg: str) -> None:  # noqa: ANN401 - of one library or the other
        """Called by the library, on any thread"""
        level = _LEVELS.get(severity.name)
        if level == logging.ERROR:
            self._last.text = self._last_of_all = msg
        # an error is told by whoever made the call
        if level is not None and level != logging.ERROR:
            _LOG.log(level, "%s: %s", self._library, msg)

    def begin(self) -> None:
        """Forgets the errors before"""
        self._last.text = self._last_of_all = ""

    def why(self) -> str:
        """The last error of this thread, or of one that the library has made"""
        return getattr(self._last, "text", "") or self._last_of_all or f"{self._library} gives no reason"
