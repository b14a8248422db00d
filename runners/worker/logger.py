"""Lines for the server's log"""

from __future__ import annotations

import enum

from . import server
from .given import text

__all__ = ["LogLevel", "Logger"]


class LogLevel(enum.Enum):
    """How much a line matters"""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    VERBOSE = "verbose"


class Logger:
    """Writes lines at one of four levels; used as it is, without an instance"""

    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    @staticmethod
    def log(message: str, level: LogLevel = LogLevel.INFO) -> None:
        """A line at any level"""
        message = text(message, "a line of the log")
        if not isinstance(level, LogLevel):
            raise TypeError(f"expected a LogLevel, got {type(level).__name__}")
        server.log(level.value, message)

    @staticmethod
    def log_info(message: str) -> None:
        """A line that says what happens"""
        Logger.log(message, LogLevel.INFO)

    @staticmethod
    def log_warn(message: str) -> None:
        """A line that says what is odd"""
        Logger.log(message, LogLevel.WARNING)

    @staticmethod
    def log_error(message: str) -> None:
        """A line that says what failed"""
        Logger.log(message, LogLevel.ERROR)

    @staticmethod
    def log_verbose(message: str) -> None:
        """A line for those who search for something"""
        Logger.log(message, LogLevel.VERBOSE)
