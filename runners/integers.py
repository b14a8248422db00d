"""Integers as texts state them: in flags, variables, parameters and the arguments of commands"""

import re

__all__ = ["INT32_MAX", "INT64_MAX", "MAX_THREADS", "UINT64_MAX", "integer"]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1
MAX_THREADS = 1024
"""Of one pool: more would take minutes to start, and all memory"""

# Python's int() takes underscores, spaces and the digits of every script as well
_FORM = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


def integer(text: str, least: int = -INT64_MAX - 1, most: int = INT64_MAX) -> int | None:
    """The decimal number in `text`, or nothing where it is none or lies outside these bounds"""
    if not _FORM.fullmatch(text):
        return None
    number = int(text)
    return number if least <= number <= most else None
