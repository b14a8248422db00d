"""An engine of this process with a slow model, which waits for the test where it should."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runners import Engine, Result
from tests.gates import HELD, Gate
from tests.serving import labelled, metrics
from tests.waiting import eventually

__all__ = ["NONE", "Array", "Slow", "steps"]

Array = NDArray[Any]


def steps(number: int) -> Array:
    return np.array([[number]])


NONE = steps(0)


@dataclass
class Slow:
    """A model that executes one request at a time, with room for two more in its queue"""

    engine: Engine
    metrics: tuple[str, int]
    gate: Gate

    def infer(self, inputs: Array = NONE, deadline: float | None = None) -> asyncio.Future[Result]:
        return self.engine.async_infer("slow", inputs, deadline=deadline)

    def until_waiting(self, count: int) -> None:
        name = "nv_inference_pending_request_count"
        eventually(
            lambda: labelled(metrics(self.metrics), name, model="slow", version="1") == count, f"{count} requests wait"
        )

    def occupy(self) -> asyncio.Future[Result]:
        """Comes back when the model executes, which it does until it is let go on"""
        executing = self.infer(steps(HELD))
        self.gate.until_reached()
        return executing

    def go_on(self) -> None:
        self.gate.let_through()

    def until_idle(self) -> None:
        """Comes back when the model has nothing to do"""
        assert self.engine.infer("slow", NONE)["OUTPUT0"].item() == 0
