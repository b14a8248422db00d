"""
JSON that a model brings, read at a cost that grows with its length alone.

Python reads a long number in a multiple of its length, and nobody else runs Python meanwhile.
"""

import json

__all__ = ["MOST_DIGITS", "read_json"]

MOST_DIGITS = 64
"""Of a number, its sign, point and exponent counted: an integer of 64 bits has 20, what Python writes of a float 24"""


def read_json(text: str | bytes) -> object:
    """What the text says; raises ValueError where it is no JSON, and RecursionError where it is nested too deeply"""
    return json.loads(text, parse_int=_integer, parse_float=_float)


def _integer(text: str) -> int:
    _check(text)
    return int(text)


def _float(text: str) -> float:
    _check(text)
    return float(text)


def _check(text: str) -> None:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} characters, expected at most {MOST_DIGITS}")
