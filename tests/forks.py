"""Forked children of a test's process."""

from __future__ import annotations

import gc
import os
import signal
import warnings
from collections.abc import Callable

# a child that says nothing for so long is ended by a signal
PATIENCE_S = 30


def forked(child: Callable[[], str]) -> str:
    """What a forked child says; it must say it, and it must not outlive its answer."""
    # What earlier tests left behind ends here. A child that collected it would wait for threads that its parent alone
    # has: gRPC's channels do.
    gc.collect()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        # the handler that pytest-timeout sets would raise where an exception may be lost
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE_S)
        try:
            text = child()
        except BaseException as error:  # noqa: BLE001 - the parent judges it
            text = repr(error)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read().decode()
    ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert ended == 0, f"the child ended with {ended} after it had said {said!r}"
    return said
