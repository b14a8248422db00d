"""What a document may cost, in one table, and what is said where it is not one."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import UnreadableDocument

__all__ = ["LIMITS", "Limits", "malformed"]


@dataclass(frozen=True)
class Limits:
    """Each has its bomb in tests/unit/uploads/test_documents.py"""

    file_bytes: int = 64 * 1024 * 1024
    pages: int = 500
    megapixels: float = 40.0
    """Of a picture: more than a good camera takes, since a page is looked at closely"""
    side: int = 4000
    """Pixels of the longer side of a page of a PDF, however large its paper is"""
    characters: int = 100_000
    """Of a page that says its text itself; one of a newspaper has 20,000"""


LIMITS = Limits()


def malformed() -> UnreadableDocument:
    return UnreadableDocument("the PDF is truncated or malformed")
