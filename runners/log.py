"""Log lines as Triton writes them: I1121 04:05:06.123456 1234 cli.py:12] message"""

import json
import logging
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from kushi_native import flush_log, log_settings, set_log, shortened, write_log

from .printable import printable
from .settings import LogOptions

__all__ = ["redirect", "setup", "table"]

_ROOT = __name__.rpartition(".")[0]
_LAST_SECONDS = 1.0
_LETTERS = {logging.DEBUG: "I", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "E"}


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        letter = _LETTERS.get(record.levelno, "I")
        *_, form = log_settings()
        iso = form == "ISO8601"
        start = f"{moment:%Y-%m-%dT%H:%M:%SZ} {letter}" if iso else f"{letter}{moment:%m%d %H:%M:%S.%f}"
        message = record.getMessage()
        if not getattr(record, "table", False):
            # clients choose some of it
            message = printable(_shown(message))
        if record.exc_info:
            message += "\n" + _shown(self.formatException(record.exc_info))
        return f"{start} {os.getpid()} {record.filename}:{record.lineno}] {message}"


def _shown(text: str) -> str:
    """Names of files may have bytes that are no text, which come as lone surrogates"""
    return shortened(text.encode("utf-8", "backslashreplace").decode())


class _Chosen(logging.Filter):
    """The native core has the settings of the process: clients may change them there"""

    def filter(self, record: logging.LogRecord) -> bool:
        verbose, info, warning, error, _ = log_settings()
        if record.levelno >= logging.ERROR:
            return error
        if record.levelno >= logging.WARNING:
            return warning
        return info if record.levelno >= logging.INFO else verbose > 0


class _StandardError(logging.Handler):
    """Among the lines of the native core: no thread waits for whoever reads them"""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # noqa: BLE001 - whoever logs goes on, as with all handlers
            line = f"{record.filename}:{record.lineno}] what was to be logged cannot be: {type(error).__name__}"
        write_log(f"{line}\n")

    def flush(self) -> None:
        flush_log(_LAST_SECONDS)


def redirect(path: str) -> None:
    """Makes standard error the file at `path`, for the lines of the native core as well"""
    with Path(path).open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())


def setup(options: LogOptions) -> None:
    """Sends the package's log to standard error"""
    set_log(json.dumps(options.native))
    handler = _StandardError()
    handler.setFormatter(_Lines())
    handler.addFilter(_Chosen())
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG)
    root.propagate = False


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as Triton prints it, on lines of its own"""
    cells = [[cell.split("\n") for cell in row] for row in (head, *rows)]
    widths = [max(len(line) for row in cells for line in row[column]) for column in range(len(head))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    body = [_lines(row, widths) for row in cells]
    return "\n".join(["", rule, body[0], rule, *body[1:], rule, ""])


def _lines(row: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    height = max(len(cell) for cell in row)
    padded = [[*cell, *[""] * (height - len(cell))] for cell in row]
    return "\n".join(
        "|" + "|".join(f" {cell[line]:<{width}} " for cell, width in zip(padded, widths, strict=True)) + "|"
        for line in range(height)
    )
