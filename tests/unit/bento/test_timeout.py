"""A request that takes too long, or whose client has gone, is ended, and nothing of it is left behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from runners.bento.web.timeout import CLIENT_GONE, Timeout
from tests.unit.bento.asgi import Answer, Call, answering, ask

if TYPE_CHECKING:
    from runners.bento.web.asgi import Application, Message, Receive, Scope, Send

pytestmark = pytest.mark.clock


async def _forever(_scope: Scope, _receive: Receive, _send: Send) -> None:
    await asyncio.Event().wait()


def test_a_request_that_takes_too_long_is_told_so() -> None:
    answer = asyncio.run(ask(Timeout(_forever, 0.01), Call()))
    assert answer.status == 504
    assert answer.json() == {"error": "Not able to process the request in 0.01 seconds"}


def test_the_application_is_cancelled_when_the_time_is_over() -> None:
    ended = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _forever(scope, receive, send)
        finally:
            ended.append(True)

    asyncio.run(ask(Timeout(application, 0.01), Call()))
    assert ended


def test_the_task_goes_on_after_the_time_was_over() -> None:
    async def main() -> list[int]:
        application = Timeout(_forever, 0.01)
        statuses = []
        for _ in range(2):
            statuses.append((await ask(application, Call())).status)
            await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return statuses

    assert asyncio.run(main()) == [504, 504]


def test_an_answer_that_has_begun_is_not_cut() -> None:
    async def slow(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": b"late"})

    assert asyncio.run(ask(Timeout(slow, 0.01), Call())).body == b"late"


def test_somebody_elses_cancellation_is_passed_on() -> None:
    async def main() -> Answer:
        call = Call()
        task = asyncio.create_task(ask(Timeout(_forever, 60), call))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return call.answer

    assert asyncio.run(main()).status == 0


def test_nothing_of_a_request_is_kept_until_its_time_would_be_over() -> None:
    class Load:
        pass

    async def main() -> None:
        application = Timeout(answering(), 3600)
        call = Call()
        load = call.scope["load"] = Load()
        kept = weakref.ref(load)
        await ask(application, call)
        del call, load
        gc.collect()
        assert kept() is None

    asyncio.run(main())


def test_what_the_application_raises_comes_out() -> None:
    async def broken(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(ask(Timeout(broken, 60), Call()))


# --- a client that goes away ---


def _reading(then: Application) -> Application:
    """An application that reads all of a request first"""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body", False):
            pass
        await then(scope, receive, send)

    return application


def _left(application: Application, call: Call, *, watched: str = "/") -> Answer:
    async def main() -> Answer:
        asyncio.get_running_loop().call_later(0.1, call.leave)
        return await asyncio.wait_for(ask(Timeout(application, 60, [watched]), call), 10)

    return asyncio.run(main())


@pytest.mark.parametrize("body", [[b""], [b"one", b"two"]])
def test_a_request_whose_client_has_gone_is_cancelled(body: list[bytes]) -> None:
    ended = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _forever(scope, receive, send)
        except asyncio.CancelledError:
            ended.append(True)
            raise

    answer = _left(_reading(application), Call(body=body))
    assert ended
    assert (answer.status, answer.complete) == (CLIENT_GONE, True)


def test_the_rest_of_a_slow_upload_is_read_by_the_application_alone() -> None:
    class Slow(Call):
        async def receive(self) -> Message:
            await asyncio.sleep(0.03)
            return await super().receive()

    pieces: list[bytes] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        message: Message = {"more_body": True}
        while message.get("more_body", False):
            message = await receive()
            pieces.append(message["body"])
        await _forever(scope, receive, send)

    body = [bytes([number]) for number in range(6)]
    assert _left(application, Slow(body=body)).status == CLIENT_GONE
    assert pieces == body


def test_an_answer_that_has_begun_goes_on_without_the_client() -> None:
    async def begins(_scope: Scope, _receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.06)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0.1)
        await send({"type": "http.response.body", "body": b"all"})

    assert _left(_reading(begins), Call()).body == b"all"


def test_other_paths_are_not_watched() -> None:
    async def slow(_scope: Scope, _receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.2)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    assert _left(_reading(slow), Call("/thread"), watched="/awaited").body == b"done"


def test_an_application_that_waits_for_the_end_itself_sees_it() -> None:
    async def listens(_scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.body", "body": b"seen"})

    assert _left(_reading(listens), Call()).body == b"seen"
