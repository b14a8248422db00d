"""
The process in which uploads are read: see `reader`, which starts this file by its path.

It imports nothing but the standard library and what the functions need that it is asked to call. It ends when the
worker that started it has gone, and by SIGPROF when a call has taken its time on the processor.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def serve(connection: Connection[Any, Any], seconds: float, memory_bytes: int) -> None:
    sys.path[:] = connection.recv()
    limited = False
    with suppress(EOFError, ConnectionError):
        while True:
            path, functions = connection.recv()
            if not limited:
                # from here on, with all modules there
                _limit_memory(memory_bytes)
                limited = True
            signal.setitimer(signal.ITIMER_PROF, seconds)
            answer = _packed(_call(path, functions))
            signal.setitimer(signal.ITIMER_PROF, 0)
            connection.send_bytes(answer)


def _call(path: Path, functions: Sequence[Callable[[Any], Any]]) -> tuple[bool, Any]:
    try:
        value: Any = path.read_bytes()
        for function in functions:
            value = function(value)
    except MemoryError as error:
        return False, error
    except Exception as error:  # noqa: BLE001 - raised where it was asked for
        # for the log there: the frames of this process do not come along
        error.add_note("".join(traceback.format_exception(error)))
        return False, error
    return True, value


def _packed(answer: tuple[bool, Any]) -> bytes:
    try:
        return pickle.dumps(answer)
    except Exception as error:  # noqa: BLE001 - as above
        return pickle.dumps((False, error))


def _limit_memory(more_bytes: int) -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    # a terminal and a supervisor tell all processes; this one ends after the worker has
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])), float(sys.argv[2]), int(sys.argv[3]))
