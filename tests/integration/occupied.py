"""A model whose one instance is busy, known without a sleep.

The request that executes stands at the gate of the model, and the server shows how many others wait (the pending
gauge). Where no gate is, the system shows which threads of the server run: that of an idle instance begins to run when
a request has come, and when none waits any more, it executes.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Self

from tests.contract import requests
from tests.contract.requests import Infer, Tensor
from tests.gates import HELD, Gate
from tests.raw_http import Connection, Headers, frame
from tests.serving import Server, executes, labelled
from tests.waiting import eventually

__all__ = [
    "ENDLESS_STEPS",
    "LONG_STEPS",
    "Occupied",
    "occupy",
    "pending",
    "send_behind_another",
    "slow_request",
    "until_executing",
    "until_pending",
]

LONG_STEPS: Final = 40_000
"""Steps of the slow model that take most of a second."""

ENDLESS_STEPS: Final = 10_000_000
"""More than a test waits for, whose server is its own and killed in the end."""


def slow_request(
    steps: int,
    *,
    model: str = "slow",
    rows: int = 1,
    headers: Headers = (),
    parameters: dict[str, int] | None = None,
    id: str = "",  # noqa: A002 - its name in the protocol
) -> bytes:
    request = Infer(
        model, [Tensor("STEPS", "INT64", (rows, 1), values=[steps] * rows)], id=id, parameters=parameters or {}
    )
    framing, body = requests.body(request)
    return frame("POST", requests.path(model), [*framing, *headers], body)


def pending(server: Server, model: str = "slow") -> int:
    return int(labelled(server.metrics(), "nv_inference_pending_request_count", model=model, version="1"))


def until_pending(server: Server, count: int, model: str = "slow") -> None:
    eventually(lambda: pending(server, model) == count, f"{count} requests wait")


def until_idle(server: Server, model: str = "slow") -> None:
    eventually(lambda: pending(server, model) == 0 and not executes(server.pid, model), "nothing to do")


def until_executing(server: Server, model: str = "slow") -> None:
    """Comes back when the instance, which was idle, executes: what was sent may still be on its way through the door"""
    eventually(lambda: executes(server.pid, model) and pending(server, model) == 0, "a request executes")


@dataclass
class Occupied:
    """One request that executes until it is let go on, and one behind it, which waits."""

    executing: Connection
    waiting: Connection
    gate: Gate

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.executing.close()
        self.waiting.close()
        self.gate.close()

    def go_on(self) -> None:
        """Lets the one that executes come to its end"""
        self.gate.let_through()


def send_behind_another(server: Server, data: bytes) -> Connection:
    """Sends a request in one piece with a small one before it, whose answer shows that the server is at this one."""
    connection = server.connect()
    connection.send(frame("GET", "/v2/health/live") + data)
    assert connection.receive("GET").status == 200
    return connection


def occupy(server: Server, *, model: str = "slow") -> Occupied:
    """Comes back while the only instance of the model executes ``executing`` and ``waiting`` stands in the queue."""
    assert server.repository is not None
    with ExitStack() as opened:
        gate = opened.enter_context(Gate(server.repository, model))
        executing = opened.enter_context(send_behind_another(server, slow_request(HELD, model=model)))
        gate.until_reached()
        waiting = opened.enter_context(send_behind_another(server, slow_request(0, model=model, id="waiting")))
        until_pending(server, 1, model)
        assert not executing.has_answer()
        assert not waiting.has_answer()
        opened.pop_all()
    return Occupied(executing, waiting, gate)
