from __future__ import annotations

import asyncio
import gc
import importlib.util
import queue
import sys
from typing import TYPE_CHECKING, Any

import pytest

from runners.worker import pb_utils
from runners.worker import server as servers
from runners.worker.calls import Model, Outcomes
from runners.worker.errors import TritonError, TritonModelException
from runners.worker.messages import FINAL, write_responses
from runners.worker.requests import RELEASE_RESCHEDULE, IncomingRequest
from runners.worker.responses import RESPONSE_FINAL, InferenceResponse, InferenceResponseSender
from tests.unit.worker.instance import ABSENT, BEGIN, LENGTHS, Instance, response, texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.worker.answering import AnsweringServer


def test_responses_come_back_in_their_order(server: AnsweringServer) -> None:
    given = [response(1), response(2)]
    assert Instance(lambda _: given).run(2) == given
    assert server.lines == []


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, "Expected a list in the execute return, found type '<class 'NoneType'>'."),
        ("text", "Expected a list in the execute return, found type '<class 'str'>'."),
        ([None], f"{ABSENT}, found type '<class 'NoneType'>'."),
        (
            [3],
            "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'.",
        ),
        ([], f"{LENGTHS} InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n"),
    ],
)
def test_what_is_no_list_of_responses_is_an_error(server: AnsweringServer, returned: Any, text: str) -> None:
    assert texts(Instance(lambda _: returned).run()) == [BEGIN + text]
    assert server.lines == [("error", BEGIN + text)]


def test_a_wrong_element_fails_its_request_alone(server: AnsweringServer) -> None:
    good = response()
    outcomes = Instance(lambda _: [good, 3, good]).run(3)
    assert (outcomes[0], outcomes[2]) == (good, good)
    assert "found type '<class 'int'>'" in str(texts(outcomes)[1])


class Closed(list[Any]):
    """Whose own methods raise"""

    def __iter__(self) -> Any:
        raise ValueError("no")

    def __len__(self) -> int:
        raise ValueError("no")

    def copy(self) -> Any:
        raise ValueError("no")


def test_the_methods_of_a_list_of_another_class_are_not_called(server: AnsweringServer) -> None:
    good = response()
    assert Instance(lambda _: Closed([good])).run() == [good]


class Nameless(type):
    def __repr__(cls) -> str:
        raise ValueError("no")


class Classless(metaclass=Nameless):
    @property
    def __class__(self) -> Any:
        raise ValueError("no")

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise ValueError("no")


def test_what_says_nothing_of_its_class_is_no_response(server: AnsweringServer) -> None:
    for execute in (lambda _: Classless(), lambda _: [Classless()]):
        assert ["found type '<class 'Classless'>'" in str(told) for told in texts(Instance(execute).run())] == [True]


def test_a_list_of_the_wrong_length_fails_every_request(server: AnsweringServer) -> None:
    assert all("size is:3, and InferenceResponse(s) size is:2" in str(text) for text in texts(Instance(two).run(3)))


def popping(requests: list[Any]) -> list[InferenceResponse]:
    return [response(requests.pop().key) for _ in range(len(requests))][::-1]


def dropping(requests: list[Any]) -> list[InferenceResponse]:
    del requests[0]
    return [response(request.key) for request in requests]


def raising(requests: list[Any]) -> None:
    requests.clear()
    raise ValueError("nothing is left")


class Lying(list[Any]):
    def __len__(self) -> int:
        return 3


def test_a_model_may_change_the_list_that_it_is_given(server: AnsweringServer) -> None:
    numbers = [
        outcome.output_tensors()[0].as_numpy().item() if outcome else None for outcome in Instance(popping).run(3)
    ]
    assert numbers == [0, 1, 2]
    for execute, text in ((dropping, LENGTHS), (raising, "nothing is left"), (lambda _: Lying(), LENGTHS)):
        assert [text in str(told) for told in texts(Instance(execute).run(3))] == [True] * 3
    assert server.lines


def two(_: Any) -> list[InferenceResponse]:
    return [response(), response()]


def test_a_decoupled_model_returns_nothing(server: AnsweringServer) -> None:
    assert texts(Instance(lambda _: [response()], decoupled=True).run()) == [
        BEGIN + "Python model 'm_0_0' is using the decoupled mode and the execute function must return None."
    ]


def test_a_decoupled_model_answers_by_its_senders(server: AnsweringServer) -> None:
    def execute(requests: list[IncomingRequest]) -> None:
        for request in requests:
            request.get_response_sender().send(response(), RESPONSE_FINAL)

    assert Instance(execute, decoupled=True).run(2) == [None, None]
    assert server.ends() == {0: 1, 1: 1}
    assert server.dropped_keys == []


def test_a_sender_is_used_when_execute_has_returned(server: AnsweringServer) -> None:
    kept: list[InferenceResponseSender] = []
    model = Instance(
        lambda requests: kept.extend(request.get_response_sender() for request in requests), decoupled=True
    )
    assert model.run() == [None]
    kept[0].send(response())
    kept[0].send(flags=RESPONSE_FINAL)
    assert server.ends() == {0: 1}


def test_a_model_in_default_mode_may_answer_by_senders(server: AnsweringServer) -> None:
    def execute(requests: list[IncomingRequest]) -> list[InferenceResponse | None]:
        requests[0].get_response_sender().send(response())
        return [None, response()]

    outcomes = Instance(execute).run(2)
    assert outcomes[0] is None
    assert texts(outcomes) == [None, None]
    assert outcomes[1] is not None
    assert server.ends() == {0: 1}


def test_a_request_that_has_its_response_gets_no_second_one(server: AnsweringServer) -> None:
    def execute(requests: list[IncomingRequest]) -> list[InferenceResponse]:
        requests[0].get_response_sender().send(response())
        return [response()]

    assert Instance(execute).run() == [None]
    assert server.ends() == {0: 1}
    assert "has one already" in server.lines[0][1]


def test_a_sender_is_closed_by_a_returned_response(server: AnsweringServer) -> None:
    kept: list[InferenceResponseSender] = []

    def execute(requests: list[IncomingRequest]) -> list[InferenceResponse]:
        kept.append(requests[0].get_response_sender())
        return [response()]

    assert texts(Instance(execute).run()) == [None]
    with pytest.raises(TritonModelException, match="closed"):
        kept[0].send(response())


@pytest.mark.parametrize("decoupled", [True, False])
def test_an_exception_fails_the_requests_without_an_end(server: AnsweringServer, decoupled: bool) -> None:
    def execute(requests: list[IncomingRequest]) -> None:
        requests[1].get_response_sender().send(response(), RESPONSE_FINAL)
        raise KeyError("gone")

    outcomes = Instance(execute, decoupled=decoupled).run(3)
    assert [outcome is None for outcome in outcomes] == [False, True, False]
    assert str(texts(outcomes)[0]).startswith(BEGIN + "KeyError: 'gone'\n\nAt:\n  ")
    assert server.ends() == {1: 1}
    gc.collect()
    assert server.dropped_keys == []


def test_a_request_is_executed_again(server: AnsweringServer) -> None:
    def execute(requests: list[IncomingRequest]) -> list[InferenceResponse | None]:
        requests[0].set_release_flags(RELEASE_RESCHEDULE)
        return [None, response()]

    requests = [IncomingRequest(key, []) for key in range(2)]
    outcomes: queue.SimpleQueue[Outcomes] = queue.SimpleQueue()
    Instance(execute).model.execute(requests, outcomes.put)
    assert texts(outcomes.get()) == [None, None]
    assert [request.rescheduled for request in requests] == [True, False]


def test_a_decoupled_request_that_is_executed_again_is_not_over(server: AnsweringServer) -> None:
    def execute(requests: list[IncomingRequest]) -> None:
        requests[0].get_response_sender().send(response())
        requests[0].set_release_flags(RELEASE_RESCHEDULE)

    assert Instance(execute, decoupled=True).run() == [None]
    gc.collect()
    assert (server.ends(), server.dropped_keys) == ({0: 0}, [])


def test_a_request_is_not_answered_and_executed_again(server: AnsweringServer) -> None:
    def execute(requests: list[IncomingRequest]) -> list[InferenceResponse]:
        requests[0].set_release_flags(RELEASE_RESCHEDULE)
        return [response()]

    assert "Expected a None object" in str(texts(Instance(execute).run())[0])


MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return self.deeper()

    def deeper(self):
        return pb_utils.Tensor("", 3)
"""


@pytest.fixture
def triton_python_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class of a file that imports the API as models do."""
    for name in pb_utils.NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    pb_utils.install()
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    spec = importlib.util.spec_from_file_location("model", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.TritonPythonModel
    for name in pb_utils.NAMES:
        del sys.modules[name]


def test_a_traceback_is_of_the_users_file_alone(
    server: AnsweringServer, tmp_path: Path, triton_python_model: Any
) -> None:
    outcomes: queue.SimpleQueue[Outcomes] = queue.SimpleQueue()
    model = Model(triton_python_model, "m_0_0", decoupled=False)
    model.execute([IncomingRequest(0, [])], outcomes.put)
    raised = "TypeError: expected an array of NumPy's for tensor '', got int"
    file = tmp_path / "model.py"
    assert texts(outcomes.get()) == [f"{BEGIN}{raised}\n\nAt:\n  {file}(9): deeper\n  {file}(6): execute\n"]
    lines = server.lines[0][1].splitlines()
    assert lines[0] == BEGIN + "Traceback (most recent call last):"
    assert lines[1] == f'  File "{file}", line 6, in execute'
    assert lines[-1] == raised
    assert [line for line in lines if line.startswith("  File")][-1] == f'  File "{file}", line 9, in deeper'


def test_calls_of_other_models_know_on_whose_behalf_they_are(server: AnsweringServer) -> None:
    keys = []

    def execute(requests: list[IncomingRequest]) -> list[InferenceResponse]:
        keys.append(servers.executing.get())
        return [response() for _ in requests]

    Instance(execute).run(2)
    assert keys == [(0, 1)]
    assert servers.executing.get() == ()


def test_a_class_without_execute_fails_its_requests(server: AnsweringServer) -> None:
    class TritonPythonModel:
        pass

    outcomes: queue.SimpleQueue[Outcomes] = queue.SimpleQueue()
    Model(TritonPythonModel, "m_0_0", decoupled=False).execute([IncomingRequest(0, [])], outcomes.put)
    (text,) = texts(outcomes.get())
    assert str(text).startswith(f"{BEGIN}Python model ")
    assert str(text).endswith(" does not implement `execute` method.")


def test_sys_exit_of_execute_is_not_caught(server: AnsweringServer) -> None:
    def execute(_: Any) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        Instance(execute).begin()


def test_the_other_methods_are_called_where_there_are_any(server: AnsweringServer) -> None:
    called: list[Any] = []

    class TritonPythonModel:
        def initialize(self, args: dict[str, str]) -> None:
            called.append(args)

        def finalize(self) -> None:
            called.append("finalize")

    model = Model(TritonPythonModel, "m_0_0", decoupled=False)
    model.initialize({"model_name": "m"})
    model.finalize()
    assert called == [{"model_name": "m"}, "finalize"]

    bare = Model(type("TritonPythonModel", (), {}), "m_0_0", decoupled=False)
    bare.initialize({})
    bare.finalize()
    assert bare.is_ready()


async def coroutine_of(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


def broken() -> bool:
    raise RuntimeError("not now")


@pytest.mark.parametrize("name", ["is_ready", "is_model_ready"])
@pytest.mark.parametrize(
    ("ask", "ready"),
    [
        (lambda: True, True),
        (lambda: False, False),
        (lambda: "ready", False),
        (lambda: coroutine_of(True), True),
        (lambda: coroutine_of(False), False),
        (broken, False),
    ],
)
def test_a_model_says_whether_it_is_ready(server: AnsweringServer, name: str, ask: Any, ready: bool) -> None:
    model = Model(type("TritonPythonModel", (), {name: staticmethod(ask)}), "m_0_0", decoupled=False)
    assert model.is_ready() is ready
    model.finalize()


def test_the_text_of_an_error_is_as_long_as_it_may_be_shown(server: AnsweringServer) -> None:
    def fail(_: Any) -> None:
        raise ValueError("x " * 1_000_000)

    (text,) = texts(Instance(fail).run())
    assert text is not None
    assert len(text) < 33 << 10
    assert f"{__file__}(" in text
    assert all(len(line) < 33 << 10 for _, line in server.lines)
    error = TritonError("y" * 1_000_000)
    written = write_responses([(0, FINAL, InferenceResponse(error=error), [])])
    assert sum(map(len, written)) < 33 << 10
