"""
The life of a server process: look whether the doors are free, load, open the doors, wait for a signal, drain, exit.

A first SIGTERM or SIGINT drains, a second one exits at once. Before the doors are open nothing has been accepted, so
that a first one exits at once too. Signals arrive on the main thread, which does nothing but wait for them.
"""

import logging
import os
import signal
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from . import log
from .doors import probe_tcp, probe_unix
from .engine import Engine, EngineOptions
from .errors import KushiError, about
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
    log.setup(_log_options(settings))
    signals = _Signals()
    try:
        _probe_doors(settings)
        engine = Engine(*settings.model_repository, options=_options(settings))
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
    """SIGTERM and SIGINT; the handler only writes to a pipe, since nothing with a lock is safe in it"""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._draining = False
        self._received = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def drain_from_now_on(self) -> None:
        self._draining = True

    def wait(self) -> None:
        os.read(self._reader, 1)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._received += 1
        if not self._draining:
            os._exit(0)
        if self._received > 1:
            os._exit(128 + number)
        os.write(self._writer, b"\0")


def _options(settings: ServerSettings) -> EngineOptions:
    return EngineOptions(
        server_name=settings.id,
        auto_complete=not settings.disable_auto_complete_config,
        load_threads=settings.model_load_thread_count,
        strict_readiness=settings.strict_readiness,
        io_threads=settings.http_thread_count,
        http_max_input_bytes=settings.http_max_input_size,
        cpu_metrics=settings.allow_cpu_metrics,
        metrics_interval_ms=settings.metrics_interval_ms,
        log=_log_options(settings),
    )


def _log_options(settings: ServerSettings) -> log.LogOptions:
    return log.LogOptions(
        verbose=settings.log_verbose,
        info=settings.log_info,
        warning=settings.log_warning,
        error=settings.log_error,
        form=settings.log_format,
    )


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
    if settings.allow_metrics:
        with about(_metrics_at(settings)):
            port = engine.serve_metrics(_metrics_address(settings), settings.metrics_port)
        _LOG.info("Started Metrics Service at %s:%d", _metrics_address(settings), port)


def _http_at(settings: ServerSettings) -> str:
    return f"failed to start HTTP service at {settings.http_address}:{settings.http_port}"


def _http_at_socket(settings: ServerSettings) -> str:
    return f"failed to start HTTP service at {settings.http_socket}"


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
