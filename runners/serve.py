"""
The life of a server process: look whether the doors are free, load, open the doors, wait for a signal, drain, exit.

A first SIGTERM or SIGINT drains, a second one exits at once. Before the doors are open nothing has been accepted, so
that a first one exits at once too. Signals arrive on the main thread, which does nothing but wait for them. Under a
supervisor it is a pipe that says so, once, and signals say nothing.
"""

import logging
import os
import signal
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from . import log
from .descriptors import allow_connections
from .doors import probe_tcp, probe_unix
from .engine import Engine
from .errors import KushiError, about
from .options import engine_options, log_options
from .settings import ServerSettings

__all__ = ["serve"]

_LOG = logging.getLogger(__name__)
_DRAIN_SLICE_SECONDS = 0.1
_REASON_COLUMNS = 80


def serve(settings: ServerSettings, started: float) -> int:
    """Serves until a signal comes, and answers the exit code; `started` is the monotonic time after the imports"""
    if settings.log_file:
        try:
            log.redirect(settings.log_file)
        except OSError as error:
            _LOG.error("--log-file: cannot write to '%s': %s", settings.log_file, error.strerror)
            return 1
    log.setup(log_options(settings))
    allow_connections(settings.http_max_connections)
    signals = _Signals() if settings.drain_fd is None else _Pipe(settings.drain_fd)
    try:
        _probe_doors(settings)
        engine = Engine(*settings.model_repository, options=engine_options(settings))
    except KushiError as error:
        _LOG.error("%s", error)
        return 1
    with engine:
        _LOG.info("%s", _models_table(engine), extra={"table": True})
        if engine.failures and settings.exit_on_error:
            names = ", ".join(f"'{name}'" for name in sorted(engine.failures))
            _LOG.error("exiting because %s failed to load; --exit-on-error=false serves the other models", names)
            return 1
        signals.drain_from_now_on()
        try:
            _open_doors(engine, settings)
        except KushiError as error:
            _LOG.error("%s", error)
            return 1
        _LOG.info("ready in %.3f s (%.3f s after imports)", seconds_since_exec(), time.monotonic() - started)
        signals.wait()
        return _drain(engine.drain, settings.exit_timeout_secs)


def seconds_since_exec(stat: Path = Path("/proc/self/stat")) -> float:
    """The age of this process, to a clock tick of 10 ms"""
    after_name = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(after_name[19]) / os.sysconf("SC_CLK_TCK")


class _Signals:
    """
    SIGTERM and SIGINT. Python runs a handler when the main thread comes back to it, which a thread that waits does not:
    so the signal itself writes to a pipe, whichever thread the system gives it to.
    """

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._draining = False
        self._received = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def drain_from_now_on(self) -> None:
        self._draining = True

    def wait(self) -> None:
        while not self._received:
            os.read(self._reader, 1)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._received += 1
        if not self._draining:
            os._exit(0)
        if self._received > 1:
            os._exit(128 + number)


class _Pipe:
    """A supervisor's pipe; its end, when the supervisor has died, counts as its word"""

    def __init__(self, descriptor: int) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
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
            os._exit(1)
        with self._lock:
            if not self._draining:
                os._exit(0)
        self._said.set()


def _models_table(engine: Engine) -> str:
    rows = [
        (model.name, model.version or "-", _wrapped(f"{model.state}: {model.reason}") if model.reason else model.state)
        for model in engine.models()
    ]
    return log.table(("Model", "Version", "Status"), sorted(rows))


def _wrapped(text: str) -> str:
    """Lines of a readable length; a path is never broken"""
    return textwrap.fill(text, _REASON_COLUMNS, break_long_words=False, break_on_hyphens=False)


def _probe_doors(settings: ServerSettings) -> None:
    if settings.allow_http:
        with about(_http_at(settings)):
            probe_tcp(settings.http_address, settings.http_port, reuse_port=settings.reuse_http_port)
    if settings.http_socket:
        with about(_http_at_socket(settings)):
            probe_unix(settings.http_socket)
    if settings.local_socket:
        with about(_local_at(settings)):
            probe_unix(settings.local_socket)
    if settings.allow_metrics:
        with about(_metrics_at(settings)):
            probe_tcp(_metrics_address(settings), settings.metrics_port)


def _open_doors(engine: Engine, settings: ServerSettings) -> None:
    if settings.allow_http:
        with about(_http_at(settings)):
            port = engine.serve_http(settings.http_address, settings.http_port, reuse_port=settings.reuse_http_port)
        _LOG.info("Started HTTPService at %s:%d", settings.http_address, port)
    if settings.http_socket:
        with about(_http_at_socket(settings)):
            engine.serve_http_unix(settings.http_socket)
        _LOG.info("Started HTTPService at unix://%s", settings.http_socket)
    if settings.local_socket:
        with about(_local_at(settings)):
            engine.serve_local(settings.local_socket)
        _LOG.info("Started LocalService at unix://%s", settings.local_socket)
    if settings.allow_metrics:
        with about(_metrics_at(settings)):
            port = engine.serve_metrics(_metrics_address(settings), settings.metrics_port)
        _LOG.info("Started Metrics Service at %s:%d", _metrics_address(settings), port)


def _http_at(settings: ServerSettings) -> str:
    return f"failed to start HTTP service at {settings.http_address}:{settings.http_port}"


def _http_at_socket(settings: ServerSettings) -> str:
    return f"failed to start HTTP service at {settings.http_socket}"


def _local_at(settings: ServerSettings) -> str:
    return f"failed to start the local service at {settings.local_socket}"


def _metrics_at(settings: ServerSettings) -> str:
    return f"failed to start Metrics service at {_metrics_address(settings)}:{settings.metrics_port}"


def _metrics_address(settings: ServerSettings) -> str:
    return settings.metrics_address or settings.http_address


def _drain(drain: Callable[[float], int], timeout_seconds: float) -> int:
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
        logging.shutdown()
        os._exit(1)
    _LOG.info("All requests are answered, exiting")
    return 0
