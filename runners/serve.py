"""
The life of a server process: look whether the doors are free, load, open the doors, wait for a signal, drain, exit.

A first SIGTERM, SIGINT or SIGHUP drains, a second one exits at once. Before the doors are open nothing has been
accepted, so that a first one exits at once too. Signals arrive on the main thread, which does nothing but wait for
them. Under a supervisor it is a pipe that says so, once, and signals say nothing.
"""

import logging
import os
import signal
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kushi_native import kill_workers

from . import log
from .control.load import threads_are_left
from .descriptors import allow_connections
from .doors import DOORS, exposed, probe_all
from .engine import Engine
from .errors import KushiError
from .leaving import leave
from .printable import printable
from .settings import ServerSettings

__all__ = ["serve"]

_LOG = logging.getLogger(__name__)
_DRAIN_SLICE_SECONDS = 0.1
_LAST_WORDS_SECONDS = 1.0
_REASON_COLUMNS = 80
_SHUT = (
    "gRPC stays shut: HTTP asks for tokens or TLS, and gRPC would not. Lock it by --grpc-use-ssl or "
    "--grpc-restricted-protocol, open it as it is by --allow-grpc=true, or say --allow-grpc=false"
)
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def serve(settings: ServerSettings, started: float) -> int:
    """Serves until a signal comes, and answers the exit code; `started` is the monotonic time after the imports"""
    code = _serve(settings, started)
    if threads_are_left():
        logging.shutdown()
        _exit(code)
    return code


def _exit(code: int) -> NoReturn:
    """At once, with all that models have started: the system ends the processes of workers alone"""
    kill_workers()
    leave(code)


def _serve(settings: ServerSettings, started: float) -> int:
    options = settings.engine
    if options.log.file:
        try:
            log.redirect(options.log.file)
        except OSError as error:
            log.setup(options.log)
            _LOG.error("--log-file: cannot write to '%s': %s", options.log.file, error.strerror)
            return 1
    log.setup(options.log)
    doors = settings.open_doors
    wanted = sum(door.place(doors) is not None for door in DOORS)
    allow_connections(options.http.max_connections, wanted, "--http-max-connections")
    signals = _Signals() if settings.drain_fd is None else _Pipe(settings.drain_fd)
    try:
        probe_all(doors)
        # the table of models comes first, also where one that failed is the end
        engine = Engine(*settings.repositories, options=replace(options, exit_on_error=False))
    except KushiError as error:
        _LOG.error("%s", error)
        return 1
    with engine:
        _LOG.info("%s", _models_table(engine), extra={"table": True})
        if engine.failures and options.exit_on_error:
            names = ", ".join(f"'{name}'" for name in sorted(engine.failures))
            _LOG.error("exiting because %s failed to load; --exit-on-error=false serves the other models", names)
            return 1
        signals.drain_from_now_on()
        try:
            for door in DOORS:
                if opened := door.open(engine, doors):
                    _LOG.info("%s", opened)
        except KushiError as error:
            _LOG.error("%s", error)
            return 1
        if settings.keeps_grpc_shut:
            _LOG.warning("%s", _SHUT)
        if text := exposed(doors):
            _LOG.warning("%s", text)
        _LOG.info("ready in %.3f s (%.3f s after imports)", seconds_since_exec(), time.monotonic() - started)
        signals.wait()
        return _drain(engine.drain, engine.end_runs, settings.exit_timeout_seconds)


def seconds_since_exec(stat: Path = Path("/proc/self/stat")) -> float:
    """The age of this process, to a clock tick of 10 ms"""
    after_name = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(after_name[19]) / os.sysconf("SC_CLK_TCK")


class _Signals:
    """
    SIGTERM, SIGINT, and SIGHUP unless it was ignored before, as under nohup.

    Python runs a handler when the main thread comes back to it, which a thread that waits does not: so the signal
    itself writes to a pipe, whichever thread the system gives it to.
    """

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._draining = False
        self._received = 0
        for number in _ENDING:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._handle)

    def drain_from_now_on(self) -> None:
        self._draining = True

    def wait(self) -> None:
        while not self._received:
            os.read(self._reader, 1)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._received += 1
        if not self._draining:
            _exit(0)
        if self._received > 1:
            _exit(128 + number)


class _Pipe:
    """A supervisor's pipe; its end, when the supervisor has died, counts as its word"""

    def __init__(self, descriptor: int) -> None:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        self._said = threading.Event()
        self._lock = threading.Lock()
        self._draining = False
        threading.Thread(target=self._listen, args=(descriptor,), name="kushi-drain-fd", daemon=True).start()

    def drain_from_now_on(self) -> None:
        with self._lock:
            self._draining = True

    def wait(self) -> None:
        self._said.wait()

    def _listen(self, descriptor: int) -> None:
        try:
            os.read(descriptor, 1)
        except OSError as error:
            _LOG.error("--drain-fd=%d cannot be read, exiting: %s", descriptor, error.strerror)
            logging.shutdown()
            _exit(1)
        with self._lock:
            if not self._draining:
                _exit(0)
        self._said.set()


def _models_table(engine: Engine) -> str:
    rows = [
        (model.name, model.version or "-", _wrapped(f"{model.state}: {model.reason}") if model.reason else model.state)
        for model in engine.models()
    ]
    return log.table(("Model", "Version", "Status"), sorted(rows))


def _wrapped(text: str) -> str:
    """Lines of a readable length; a path is never broken"""
    return textwrap.fill(
        printable(" ".join(text.split())), _REASON_COLUMNS, break_long_words=False, break_on_hyphens=False
    )


def _drain(drain: Callable[[float], int], end_runs: Callable[[], None], timeout_seconds: float) -> int:
    _LOG.info("Waiting for in-flight requests to complete.")
    now = time.monotonic()
    deadline, next_report = now + timeout_seconds, now
    left = drain(0)
    while left and (now := time.monotonic()) < deadline:
        if now >= next_report:
            _LOG.info("Timeout %d: Found %d in-flight requests", round(deadline - now), left)
            next_report += 1
        left = drain(min(_DRAIN_SLICE_SECONDS, deadline - now))
    if left:
        _LOG.error("Exit timeout expired with %d in-flight requests. Exiting immediately.", left)
        end_runs()
        # whoever waits for what was ended hears of it
        drain(_LAST_WORDS_SECONDS)
        logging.shutdown()
        _exit(1)
    _LOG.info("All requests are answered, exiting")
    return 0
