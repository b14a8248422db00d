"""
Python models on threads of this process, for those that are cheap and trusted: the same loop, the same messages.

Nothing here can be ended from outside, and all of them share what this process has imported.
"""

import logging
import os
import threading

from ...worker import pb_utils
from ...worker.channel import Channel
from ...worker.loop import Worker

__all__ = ["start"]

_LOG = logging.getLogger(__name__)


def start(socket: int, ending: int) -> None:
    """A worker at the other end of a socket. The second descriptor is closed when it has ended"""
    pb_utils.install()
    threading.Thread(target=_run, args=(socket, ending), name="kushi-model", daemon=True).start()


def _run(socket: int, ending: int) -> None:
    worker = Worker(Channel(socket))
    try:
        worker.run()
    except SystemExit as error:
        _LOG.error("a Python model in this process has asked to exit with %r: its thread ends", error.code)
    finally:
        worker.close()
        os.close(ending)
