"""
Reads uploads in a process of its own, which can be limited and killed: what decodes them is attacked daily.

What always holds: one upload is read at a time, in bounded memory and time on the processor; the others wait, as many
and as long as is allowed. A file that ends the process ends no other request. What decoders write is not in the log.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..environment import environment_with
from ..errors import InvalidInput, Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

__all__ = ["UploadReader"]

_PROCESS: Final = Path(__file__).with_name("process.py")
_UNANSWERED_SECONDS: Final = 30.0
"""On a machine that gives it no time on the processor"""
_END_SECONDS: Final = 2.0
_CRASHES: Final = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}

_log = logging.getLogger(__name__)


class UploadReader:
    """
    client_errors: what the functions raise where the upload is wrong; it becomes `InvalidInput`, with its text
    seconds: on the processor, for one upload
    memory_bytes: for one upload, its file included
    most_waiting, patience: how many uploads wait for their turn, and for how many seconds; others are `Overloaded`
    """

    def __init__(
        self,
        *,
        client_errors: type[Exception] | tuple[type[Exception], ...] = (),
        seconds: float = 5.0,
        memory_bytes: int = 256 * 1024 * 1024,
        most_waiting: int = 256,
        patience: float = 5.0,
    ) -> None:
        self._client_errors = client_errors
        self._seconds = seconds
        self._memory_bytes = memory_bytes
        self._most_waiting = most_waiting
        self._patience = patience
        self._turns = ThreadPoolExecutor(1, "kushi-reader")
        self._waiting = 0
        self._lock = threading.Lock()
        self._order = count()
        self._calls: list[tuple[int, int, Future[Any], Path, Sequence[Callable[[Any], Any]]]] = []
        # of the one thread
        self._child: _Child | None = None

    async def read(self, upload: Path, *functions: Callable[[Any], Any], turn: int = 0) -> Any:  # noqa: ANN401 - what the last answers
        """
        What the functions make of the file's bytes, the first of these, the next of what the one before it answered.
        They are named in the other process, so each is one of a module, and their exceptions are raised here; those of
        the client are answered with 400.

        turn: of those that wait, the one with the lowest goes first, and of equal ones the first
        """
        if self._waiting >= self._most_waiting:
            raise Overloaded(f"{self._waiting} uploads wait to be read, and no more may")
        self._waiting += 1
        try:
            call = Future[Any]()
            with self._lock:
                heapq.heappush(self._calls, (turn, next(self._order), call, upload, functions))
            self._turns.submit(self._next)
            answer = asyncio.wrap_future(call)
            try:
                done, _ = await asyncio.wait([answer], timeout=self._patience)
            except asyncio.CancelledError:
                # what has begun goes on, and nobody hears of its end
                answer.cancel()
                raise
            if not done and call.cancel():
                raise Overloaded(f"an upload has waited {self._patience:g} s to be read")
            return await answer
        finally:
            self._waiting -= 1

    def _next(self) -> None:
        """Of as many as there are calls, each makes one"""
        with self._lock:
            _, _, call, upload, functions = heapq.heappop(self._calls)
        if not call.set_running_or_notify_cancel():
            return
        try:
            call.set_result(self._call(upload, functions))
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            call.set_exception(error)

    def _call(self, upload: Path, functions: Sequence[Callable[[Any], Any]]) -> Any:  # noqa: ANN401 - as above
        child, self._child = self._child, None
        if child is None or child.has_ended():
            try:
                child = _Child(self._seconds, self._memory_bytes)
            except OSError as error:
                raise Overloaded(f"no process can be started to read uploads: {error.strerror}") from error
        try:
            done, value = child.ask((upload, functions))
        except (EOFError, OSError):
            raise self._ended(child.end()) from None
        if isinstance(value, MemoryError):
            # The next upload gets a process without what earlier ones have left behind.
            child.end()
            raise InvalidInput(f"the upload takes more than {self._memory_bytes // 2**20} MiB to read")
        self._child = child
        if done:
            return value
        if isinstance(value, self._client_errors):
            raise InvalidInput(str(value)) from value
        raise value

    def _ended(self, code: int) -> InvalidInput | Overloaded:
        if code == -signal.SIGPROF:
            return InvalidInput(f"the upload takes more than {self._seconds:g} s to read")
        if -code in _CRASHES:
            _log.warning("an upload ended the process that reads them with %s", signal.Signals(-code).name)
            mib = self._memory_bytes // 2**20
            return InvalidInput(f"the upload is malformed, or takes more than {mib} MiB to read")
        return Overloaded("the process that reads uploads has ended")


class _Child:
    def __init__(self, seconds: float, memory_bytes: int) -> None:
        self._connection, other = Pipe()
        with other:
            number = str(other.fileno())
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and a file of ours
                # -I: nothing of the folder of that file, or of the environment, is imported in a module's place
                [sys.executable, "-I", str(_PROCESS), number, str(seconds), str(memory_bytes)],
                env=environment_with(OPENBLAS_NUM_THREADS="1"),
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._end = weakref.finalize(self, _end, self._process, self._connection)
        self._connection.send(sys.path)

    def ask(self, question: object) -> tuple[bool, Any]:
        self._connection.send(question)
        if not self._connection.poll(_UNANSWERED_SECONDS):
            self._process.kill()
        answer: tuple[bool, Any] = self._connection.recv()
        return answer

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> int:
        self._end()
        return self._process.returncode


def _end(process: subprocess.Popen[bytes], connection: Connection[Any, Any]) -> None:
    connection.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
