"""How long one call takes"""

import time
from collections.abc import Callable
from statistics import median

__all__ = ["median_milliseconds"]

_LEAST_RUNS, _MOST_RUNS = 5, 500


def median_milliseconds(call: Callable[[], object], seconds: float) -> float:
    """Of as many runs as `seconds` allow, and of a few in any case"""
    taken: list[float] = []
    begun = time.perf_counter()
    while len(taken) < _LEAST_RUNS or (time.perf_counter() - begun < seconds and len(taken) < _MOST_RUNS):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return median(taken) * 1e3
