from __future__ import annotations

import asyncio
import gc
import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from runners.worker import server as servers
from runners.worker.background import Background
from runners.worker.calls import Model, Outcomes
from runners.worker.requests import IncomingRequest
from runners.worker.responses import RESPONSE_FINAL, InferenceResponse, InferenceResponseSender
from tests.unit.worker.instance import BEGIN, Instance, response, texts

if TYPE_CHECKING:
    from tests.unit.worker.answering import AnsweringServer


class Own(BaseException):
    """As some libraries cancel their tasks"""


def test_a_coroutine_is_awaited(server: AnsweringServer) -> None:
    async def execute(requests: list[IncomingRequest]) -> list[InferenceResponse]:
        await asyncio.sleep(0)
        return [response() for _ in requests]

    model = Instance(execute)
    assert texts(model.run(2)) == [None, None]
    model.model.finalize()


def test_a_coroutine_that_raises_fails_its_requests(server: AnsweringServer) -> None:
    async def execute(requests: list[IncomingRequest]) -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    model = Instance(execute)
    assert str(texts(model.run())[0]).startswith(BEGIN + "ValueError: no\n\nAt:\n")
    model.model.finalize()


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), KeyboardInterrupt(), Own()])
def test_no_coroutine_ends_the_event_loop(server: AnsweringServer, error: BaseException) -> None:
    async def execute(requests: list[IncomingRequest]) -> None:
        raise error

    model = Instance(execute)
    for _ in range(2):
        assert type(error).__name__ in str(texts(model.run())[0])
    model.model.finalize()


def test_coroutines_of_a_decoupled_model_go_on_together(server: AnsweringServer) -> None:
    waiting: list[asyncio.Event] = []

    async def execute(requests: list[IncomingRequest]) -> None:
        mine = asyncio.Event()
        waiting.append(mine)
        if len(waiting) == 3:
            for one in waiting:
                one.set()
        await mine.wait()
        requests[0].get_response_sender().send(response(), RESPONSE_FINAL)

    model = Instance(execute, decoupled=True)
    for _ in range(3):
        model.begin()
    assert [model.outcomes.get(timeout=60) for _ in range(3)] == [[None]] * 3
    assert server.ends() == {0: 3}
    model.model.finalize()


def test_a_task_goes_on_when_execute_has_returned(server: AnsweringServer) -> None:
    go = threading.Event()
    tasks = []

    async def later(sender: InferenceResponseSender) -> None:
        while not go.is_set():
            await asyncio.sleep(0)
        sender.send(response())

    async def execute(requests: list[IncomingRequest]) -> None:
        tasks.append(asyncio.create_task(later(requests[0].get_response_sender())))

    model = Instance(execute)
    assert model.run() == [None]
    go.set()
    assert server.sent.get(timeout=60)[2] == RESPONSE_FINAL
    model.model.finalize()


@pytest.mark.parametrize("decoupled", [False, True])
def test_an_exception_whose_text_cannot_be_sent_fails_its_requests(server: AnsweringServer, decoupled: bool) -> None:
    async def execute(requests: list[IncomingRequest]) -> None:
        raise ValueError("half a pair: \ud800")

    model = Instance(execute, decoupled=decoupled)
    model.begin()
    (text,) = texts(model.outcomes.get(timeout=60))
    assert str(text).startswith(BEGIN + "ValueError: half a pair: ?")
    model.model.finalize()


def test_sys_exit_in_a_task_ends_that_task_alone(server: AnsweringServer) -> None:
    tasks = []

    async def leave() -> None:
        raise SystemExit(3)

    async def execute(requests: list[IncomingRequest]) -> list[InferenceResponse]:
        tasks.append(asyncio.create_task(leave()))
        await asyncio.wait(tasks)
        return [response() for _ in requests]

    model = Instance(execute)
    for _ in range(2):
        assert texts(model.run()) == [None]
    assert [type(task.exception()) for task in tasks] == [SystemExit, SystemExit]
    model.model.finalize()


def test_finalize_waits_for_what_the_model_waits_for(server: AnsweringServer) -> None:
    go = threading.Event()

    async def execute(requests: list[IncomingRequest]) -> None:
        while not go.is_set():
            await asyncio.sleep(0)
        requests[0].get_response_sender().send(response(), RESPONSE_FINAL)

    class TritonPythonModel:
        async def execute(self, requests: list[IncomingRequest]) -> None:
            await execute(requests)

        def finalize(self) -> None:
            go.set()
            server.sent.get(timeout=60)

    outcomes: queue.SimpleQueue[Outcomes] = queue.SimpleQueue()
    model = Model(TritonPythonModel, "m_0_0", decoupled=True)
    model.execute([IncomingRequest(0, [], decoupled=True)], outcomes.put)
    model.finalize()
    assert outcomes.get(timeout=60) == [None]


def test_finalize_ends_coroutines_and_their_requests(server: AnsweringServer) -> None:
    begun = threading.Event()

    async def execute(requests: list[IncomingRequest]) -> None:
        begun.set()
        # nobody else knows what it waits for
        await asyncio.Event().wait()

    model = Instance(execute, decoupled=True)
    model.begin()
    begun.wait(60)
    gc.collect()
    model.model.finalize()
    assert "CancelledError" in str(texts(model.outcomes.get(timeout=60))[0])


@pytest.mark.parametrize("decoupled", [True, False])
def test_coroutines_know_it_as_well(server: AnsweringServer, decoupled: bool) -> None:
    keys = []

    async def deeper() -> None:
        keys.append(servers.executing.get())

    async def execute(requests: list[IncomingRequest]) -> None:
        await asyncio.sleep(0)
        await asyncio.create_task(deeper())

    model = Instance(execute, decoupled=decoupled)
    model.run(2)
    assert keys == [(0, 1)]
    model.model.finalize()


def test_the_loop_of_coroutines_begins_again_after_its_end() -> None:
    async def one() -> int:
        await asyncio.sleep(0)
        return 1

    background = Background()
    for _ in range(2):
        assert background.begin(one()).result(30) == 1
        background.end()


def test_a_coroutine_that_does_not_end_is_left_alone() -> None:
    background, begun = Background(), threading.Event()

    async def stubborn() -> None:
        ended = asyncio.Event()
        while not ended.is_set():
            begun.set()
            with suppress(asyncio.CancelledError):
                await ended.wait()

    background.begin(stubborn())
    assert begun.wait(20)
    # once more does no harm
    for _ in range(2):
        background.end(0.05)
