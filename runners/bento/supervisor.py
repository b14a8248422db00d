"""
BentoML's supervisor, `bentoml serve` itself, as it has to be for a service to be whole again soon.

BentoML's looks for dead workers every ten seconds, replaces none in containers, and misses a signal that comes while it
starts one. What is called here, from the hook `on_deployment`, counts for the supervisor that this process starts next.
"""

from __future__ import annotations

from typing import Final

from .internals.supervisor import look_after_workers, replace_in_containers

__all__ = ["VainStarts", "replace_workers_in_containers", "replace_workers_soon"]

_LOOK_SECONDS: Final = 0.25
# Of each worker: what dies of its start again and again must not keep the machine busy with that.
_STARTS_AT_ONCE: Final = 4
_SECONDS_FOR_EACH: Final = 5.0


def replace_workers_soon() -> None:
    """Dead workers are noticed within a moment"""
    look_after_workers(_LOOK_SECONDS, VainStarts)


def replace_workers_in_containers() -> None:
    """Counts for those services whose workers BentoML has not prepared yet"""
    replace_in_containers()


class VainStarts:
    """
    Those of workers that died soon after, some of which are made up for at once and all others one by one. Who has
    lived for a while did not die of its start.
    """

    def __init__(self, workers: int) -> None:
        self._workers = max(1, workers)
        self._left = 0.0
        """Those that are not made up for"""
        self._looked_at = 0.0

    def died(self, lived_seconds: float, now: float) -> None:
        if lived_seconds < _SECONDS_FOR_EACH:
            self._left = self._left_at(now) + 1
            self._looked_at = now

    def are_too_many(self, now: float) -> bool:
        return self._left_at(now) > _STARTS_AT_ONCE * self._workers - 1

    def _left_at(self, now: float) -> float:
        made_up_for = (now - self._looked_at) * self._workers / _SECONDS_FOR_EACH
        return max(0.0, self._left - made_up_for)
