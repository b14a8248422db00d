"""
Python models on threads of this process, for those that are cheap and trusted: the same loop, the same messages.

Nothing here can be ended from outside, and all of them share what this process has imported.
"""

import gc
import logging
import os
import threading
from collections.abc import Collection

from ...worker import pb_utils
from ...worker.channel import Channel
from ...worker.loop import Worker

__all__ = ["start"]

_LOG = logging.getLogger(__name__)


def start(cores: Collection[int], socket: int, ending: int) -> None:
    """
    A worker at the other end of a socket, on these cores, or where there are none on any. The second descriptor is
    closed when it has ended
    """
    pb_utils.install()
    threading.Thread(target=_run, args=(cores, socket, ending), name="kushi-model", daemon=True).start()


def _run(cores: Collection[int], socket: int, ending: int) -> None:
    if cores:
        try:
            os.sched_setaffinity(0, cores)
        except OSError as error:
            # whoever waits for the worker would wait in vain if it ended here
            _LOG.warning("a Python model in this process is not kept on cores %s: %s", sorted(cores), error)
    worker = Worker(Channel(socket))
    try:
        worker.run()
    except SystemExit as error:
        _LOG.error("a Python model in this process has asked to exit with %r: its thread ends", error.code)
    finally:
        try:
            worker.close()
            # what refers to itself, as a model with a callback of its own, goes with it and not some time
            gc.collect()
        finally:
            os.close(ending)
