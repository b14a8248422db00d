"""Work of minutes, which says every few seconds what it is at"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["reported"]

_LOG = logging.getLogger(__name__)
_SECONDS = 2.0


@contextmanager
def reported(doing: Callable[[], str]) -> Iterator[None]:
    """Writes `doing` into the log, again and again, until the work inside is done"""
    done = threading.Event()
    begun = time.monotonic()

    def report() -> None:
        while not done.wait(_SECONDS):
            _LOG.info("%s (%.0f s)", doing(), time.monotonic() - begun)

    thread = threading.Thread(target=report, name="kushi-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
