"""Log lines as Triton writes them: I1121 04:05:06.123456 1234 cli.py:12] message"""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

__all__ = ["LogOptions", "redirect", "setup", "table"]

_ROOT = __name__.rpartition(".")[0]
_LETTERS = {logging.DEBUG: "I", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "E"}


@dataclass(frozen=True)
class LogOptions:
    """Which lines are written, and how, by Python and the native core alike"""

    verbose: int = 0
    info: bool = True
    warning: bool = True
    error: bool = True
    form: Literal["default", "ISO8601"] = "default"


class _Lines(logging.Formatter):
    def __init__(self, form: Literal["default", "ISO8601"]) -> None:
        super().__init__()
        self._iso = form == "ISO8601"

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        letter = _LETTERS.get(record.levelno, "I")
        start = f"{moment:%Y-%m-%dT%H:%M:%SZ} {letter}" if self._iso else f"{letter}{moment:%m%d %H:%M:%S.%f}"
        message = record.getMessage()
        if not getattr(record, "table", False):
            message = message.replace("\r", "\\r").replace("\n", "\\n")
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        return f"{start} {os.getpid()} {record.filename}:{record.lineno}] {message}"


class _Chosen(logging.Filter):
    def __init__(self, levels: frozenset[int]) -> None:
        super().__init__()
        self._levels = levels

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno in self._levels


def redirect(path: str) -> None:
    """Makes standard error the file at `path`, for the lines of the native core as well"""
    with Path(path).open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())


def setup(options: LogOptions) -> None:
    """Sends the package's log to standard error"""
    wanted = {
        logging.DEBUG: options.verbose > 0,
        logging.INFO: options.info,
        logging.WARNING: options.warning,
        logging.ERROR: options.error,
        logging.CRITICAL: options.error,
    }
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(options.form))
    handler.addFilter(_Chosen(frozenset(level for level, on in wanted.items() if on)))
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if options.verbose else logging.INFO)
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
