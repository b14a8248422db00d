"""How many rows per second a few threads get, each of which asks again when its answer is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Rate", "rate_of", "threads"]


@dataclass(frozen=True)
class Rate:
    """What one window gave"""

    per_second: float
    p99_ms: float


def threads(ask: Callable[[], object], size: int, callers: int, seconds: float) -> Rate:
    """Each thread asks again when its answer is there; what ends before the window opens or after it does not count"""
    opens = time.perf_counter() + min(0.5, seconds / 3)
    closes = opens + seconds
    latencies: list[float] = []

    def work() -> None:
        own = []
        while (begun := time.perf_counter()) < closes:
            ask()
            ended = time.perf_counter()
            if opens <= ended < closes:
                own.append(ended - begun)
        latencies.extend(own)

    asking = [threading.Thread(target=work) for _ in range(callers)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    return rate_of(latencies, size, seconds)


def rate_of(latencies: Sequence[float], size: int, seconds: float) -> Rate:
    if not latencies:
        return Rate(0.0, float("nan"))
    last = sorted(latencies)[min(len(latencies) - 1, int(len(latencies) * 0.99))]
    return Rate(len(latencies) * size / seconds, last * 1e3)
