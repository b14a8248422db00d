"""Text of others as it may be printed: none of it begins a line or speaks to a terminal."""

import re

__all__ = ["printable"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Those that turn the direction of what follows, too"""


def printable(text: str) -> str:
    """Names of files may have bytes that are no text, which come as lone surrogates"""
    return _CONTROL.sub(_escaped, text.encode("utf-8", "backslashreplace").decode())


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
