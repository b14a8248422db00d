"""An instance of a model whose `execute` is a function of the test, and what it makes of a batch."""

from __future__ import annotations

import queue
from typing import Any, Callable

import numpy as np

from runners.worker.calls import Model, Outcomes
from runners.worker.requests import IncomingRequest
from runners.worker.responses import InferenceResponse
from runners.worker.tensors import Tensor

BEGIN = "Failed to process the request(s) for model 'm_0_0', message: "
ABSENT = "Expected an 'InferenceResponse' object in the execute function return list"
LENGTHS = "Number of InferenceResponse objects do not match the number of InferenceRequest objects."
Execute = Callable[[Any], Any]


def response(value: int = 0) -> InferenceResponse:
    return InferenceResponse([Tensor("OUT", np.array([value]))])


class Instance:
    """An instance of a class whose `execute` is a function of the test."""

    def __init__(self, execute: Execute, *, decoupled: bool = False) -> None:
        class TritonPythonModel:
            def execute(self, requests: list[IncomingRequest]) -> Any:
                return execute(requests)

        self.decoupled = decoupled
        self.model = Model(TritonPythonModel, "m_0_0", decoupled=decoupled)
        self.outcomes: queue.SimpleQueue[Outcomes] = queue.SimpleQueue()

    def begin(self, count: int = 1) -> None:
        requests = [IncomingRequest(key, [], decoupled=self.decoupled) for key in range(count)]
        self.model.execute(requests, self.outcomes.put)

    def run(self, count: int = 1) -> Outcomes:
        self.begin(count)
        outcomes = self.outcomes.get(timeout=60)
        assert self.outcomes.empty()
        return outcomes


def texts(outcomes: Outcomes) -> list[str | None]:
    """The error of each outcome that is one."""
    found: list[str | None] = []
    for outcome in outcomes:
        error = None if outcome is None else outcome.error()
        found.append(None if error is None else error.message())
    return found
