"""Errors as a model makes them: one that goes to a client, and one that is raised"""

from __future__ import annotations

import enum

from .given import text

__all__ = ["ErrorCode", "TritonError", "TritonModelException"]


class TritonModelException(Exception):
    """Raised by the API, and by models"""


class ErrorCode(enum.IntEnum):
    """Numbered as in Triton's C API, and written as there"""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __str__(self) -> str:
        return f"__ErrorCode.{self.name}"


class TritonError:
    """What a response says instead of tensors; the code decides the status that a client sees"""

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    __slots__ = ("_code", "_message")

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        message = text(message, "the message of a TritonError")
        try:
            self._code = ErrorCode(code)
        except ValueError:
            raise TypeError(f"expected one of TritonError's codes, got {code!r}") from None
        self._message = message

    def message(self) -> str:
        """What went wrong"""
        return self._message

    def code(self) -> ErrorCode:
        """One of the codes above"""
        return self._code

    def __str__(self) -> str:
        return self._message

    def __repr__(self) -> str:
        return f"TritonError({self._message!r}, {self._code.name})"
