"""How busy a GPU was, from a trace of torch.profiler as its file has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Busy", "busy", "covered"]

_KERNELS = "kernel"
_COPIES = ("gpu_memcpy", "gpu_memset")

Busy = Mapping[str, float]
Span = tuple[float, float]


def covered(spans: Iterable[Span]) -> float:
    """How long at least one of these spans was open"""
    total, end = 0.0, float("-inf")
    for begin, until in sorted(spans):
        total += max(0.0, until - max(begin, end))
        end = max(end, until)
    return total


def busy(trace: Mapping[str, Any]) -> Busy:
    """
    Shares of the time from the first to the last work on the GPU: in which a kernel ran (`kernels`), anything ran
    (`any`), and the part of the time of copies in which a kernel ran as well (`hidden`).
    """
    kernels, copies = _spans(trace, (_KERNELS,)), _spans(trace, _COPIES)
    if not kernels:
        return {"kernels": 0.0, "any": 0.0, "hidden": 0.0}
    everything = kernels + copies
    whole = max(until for _, until in everything) - min(begin for begin, _ in everything)
    computing, copying, working = covered(kernels), covered(copies), covered(everything)
    hidden = (computing + copying - working) / copying if copying else 1.0
    return {"kernels": computing / whole, "any": working / whole, "hidden": hidden}


def _spans(trace: Mapping[str, Any], categories: tuple[str, ...]) -> list[Span]:
    events = trace["traceEvents"]
    return [
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") in categories and event.get("dur")
    ]
