"""The values of settings and parameters, as Triton's backends read them"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from ..integers import INT32_MAX, MAX_THREADS, integer

__all__ = ["BOOLEANS", "COUNT", "DIRECTORY", "SWITCH", "THREADS", "Setting", "boolean"]

_BOOLEANS = {"true": True, "false": False, "on": True, "off": False, "1": True, "0": False}
BOOLEANS = "true, false, on, off, 1 or 0"
"""How an error says what `boolean` takes"""


@dataclass(frozen=True)
class Setting:
    """What the value of a setting must be, in the words of an error, and whether a text is one"""

    expected: str
    is_right: Callable[[str], bool]


def boolean(text: str) -> bool | None:
    """As Triton's backends read a truth value, or nothing where it is none"""
    return _BOOLEANS.get(text.lower())


def _up_to(most: int) -> Setting:
    return Setting(f"an integer from 0 to {most}", lambda text: integer(text, 0, most) is not None)


def _is_directory(text: str) -> bool:
    return os.path.isdir(text) and os.access(text, os.W_OK)  # noqa: PTH112 - a name that is no path is not one either


SWITCH = Setting(BOOLEANS, lambda text: boolean(text) is not None)
COUNT = _up_to(INT32_MAX)
THREADS = _up_to(MAX_THREADS)
DIRECTORY = Setting("a directory that can be written to", _is_directory)
