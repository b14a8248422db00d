"""Errors as a model makes them: one that goes to a client, and one that is raised"""

from __future__ import annotations

from .given import text

__all__ = ["TritonError", "TritonModelException"]


class TritonModelException(Exception):
    """Raised by the API, and by models"""


class TritonError:
    """What a response says instead of tensors; the code decides the status that a client sees"""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    __slots__ = ("_code", "_message")

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        message = text(message, "the message of a TritonError")
        if code not in range(self.UNKNOWN, self.CANCELLED + 1):
            raise TypeError(f"expected one of TritonError's codes, got {code!r}")
        self._message = message
        self._code = code

    def message(self) -> str:
        """What went wrong"""
        return self._message

    def code(self) -> int:
        """One of the codes above"""
        return self._code

    def __str__(self) -> str:
        return self._message

    def __repr__(self) -> str:
        return f"TritonError({self._message!r}, {self._code})"
