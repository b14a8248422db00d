"""How long one call takes"""

import time
from collections.abc import Callable
from statistics import median

__all__ = ["median_milliseconds"]

_LEAST_RUNS, _MOST_RUNS = 5, 500
_PATIENCE = 5


def median_milliseconds(call: Callable[[], object], seconds: float) -> float:
    """Of as many runs as `seconds` allow, and of a few more, unless they take much longer"""
    taken: list[float] = []
    spent = 0.0
    while not taken or (len(taken) < _MOST_RUNS and spent < (_PATIENCE if len(taken) < _LEAST_RUNS else 1) * seconds):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
        spent += taken[-1]
    return median(taken) * 1e3
