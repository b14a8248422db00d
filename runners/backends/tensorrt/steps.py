"""How far a build is"""

import time
from collections.abc import Callable
from typing import SupportsInt

__all__ = ["Progress", "Steps"]

_PROGRESS_SECONDS = 2.0

Progress = Callable[[str], None]


class Steps:
    """Says how far a build is, every few seconds"""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._steps: dict[str, int] = {}
        self._said = time.monotonic()

    def phase_start(self, phase_name: str, parent_phase: str, num_steps: SupportsInt) -> None:  # noqa: ARG002 - TensorRT's
        """Called by TensorRT"""
        self._steps[phase_name] = int(num_steps)

    def step_complete(self, phase_name: str, step: SupportsInt) -> bool:
        """Called by TensorRT; it goes on"""
        now = time.monotonic()
        if now - self._said >= _PROGRESS_SECONDS:
            self._said = now
            self._progress(f"{phase_name}: {int(step) + 1} of {self._steps.get(phase_name, 0)}")
        return True

    def phase_finish(self, phase_name: str) -> None:
        """Called by TensorRT"""
        self._steps.pop(phase_name, None)
