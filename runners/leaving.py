"""The end of the process at once, without waiting for anybody: what is not left behind all the same"""

import atexit
import os
from collections.abc import Callable
from typing import NoReturn

__all__ = ["at_any_end", "leave"]

_LAST: list[Callable[[], None]] = []


def at_any_end(function: Callable[[], None]) -> Callable[[], None]:
    """Is called at the end of the process, whether it comes as usual or at once"""
    atexit.register(function)
    _LAST.append(function)
    return function


def leave(code: int) -> NoReturn:
    try:
        for function in _LAST:
            function()
    finally:
        os._exit(code)
