from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners.worker.errors import TritonError, TritonModelException
from runners.worker.requests import IncomingRequest
from runners.worker.responses import RESPONSE_FINAL, InferenceResponse, InferenceResponseSender
from runners.worker.tensors import Tensor

if TYPE_CHECKING:
    from tests.unit.worker.answering import AnsweringServer

CLOSED = r"^Unable to send response\. Response sender has been closed\.$"


def response() -> InferenceResponse:
    return InferenceResponse([Tensor("OUT", np.zeros(1))])


def test_a_response_has_what_it_was_made_with() -> None:
    tensor = Tensor("OUT", np.zeros(1))
    made = InferenceResponse([tensor], parameters={"a": 1})
    assert (made.output_tensors(), made.has_error(), made.error(), made.parameters()) == (
        [tensor],
        False,
        None,
        '{"a": 1}',
    )


def test_a_response_that_could_not_be_sent_may_be_sent_again(
    server: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(24, "Too many open files")

    for decoupled in (True, False):
        sender = InferenceResponseSender(1, decoupled)
        with monkeypatch.context() as patch:
            patch.setattr(server, "send", fail)
            with pytest.raises(OSError, match="Too many open files"):
                sender.send(response(), RESPONSE_FINAL)
        assert server.sent.empty()
        sender.send(response(), RESPONSE_FINAL)
        assert server.sent.get()[2] == RESPONSE_FINAL
        with pytest.raises(TritonModelException, match=CLOSED):
            sender.send(response(), RESPONSE_FINAL)


def test_an_error_stands_beside_tensors() -> None:
    error = TritonError("no", TritonError.NOT_FOUND)
    made = InferenceResponse(output_tensors=[], error=error)
    assert (made.has_error(), made.error()) == (True, error)
    assert (error.message(), error.code(), str(error), TritonError("x").code()) == ("no", 2, "no", TritonError.INTERNAL)


@pytest.mark.parametrize(
    ("arguments", "raised"),
    [
        ({"output_tensors": None}, TypeError),
        ({"output_tensors": [3]}, TypeError),
        ({"output_tensors": [None]}, TritonModelException),
        ({"error": "text"}, TypeError),
    ],
)
def test_what_is_no_response_is_refused(arguments: dict[str, Any], raised: type[Exception]) -> None:
    with pytest.raises(raised):
        InferenceResponse(**arguments)


def test_a_code_is_written_as_in_triton() -> None:
    assert f"{TritonError('no').code()}" == "__ErrorCode.INTERNAL"
    assert TritonError("no", 4).code() is TritonError.UNAVAILABLE


@pytest.mark.parametrize("arguments", [(None,), ("text", "code"), ("text", 8)])
def test_what_is_no_error_is_refused(arguments: Any) -> None:
    with pytest.raises(TypeError):
        TritonError(*arguments)


def test_tensors_that_nobody_asked_for_are_left_out() -> None:
    first, second = Tensor("A", np.zeros(1)), Tensor("B", np.zeros(1))
    made = InferenceResponse([first, second])
    assert made.wanted([]) == [first, second]
    assert made.wanted(["B", "C"]) == [second]


def test_a_decoupled_model_sends_any_number(server: AnsweringServer) -> None:
    sender = IncomingRequest(5, [], decoupled=True).get_response_sender()
    first, second = response(), response()
    sender.send(first)
    sender.send(second)
    sender.send(flags=RESPONSE_FINAL)
    sent = [server.sent.get() for _ in range(3)]
    assert sent == [(5, first, 0), (5, second, 0), (5, None, RESPONSE_FINAL)]
    with pytest.raises(TritonModelException, match=CLOSED):
        sender.send(response())


def test_the_last_response_may_be_the_end(server: AnsweringServer) -> None:
    sender = InferenceResponseSender(5, decoupled=True)
    sender.send(response(), RESPONSE_FINAL)
    assert server.sent.get()[2] == RESPONSE_FINAL
    with pytest.raises(TritonModelException, match=CLOSED):
        sender.send(flags=RESPONSE_FINAL)


def test_a_sender_is_closed_once(server: AnsweringServer) -> None:
    sender = InferenceResponseSender(5, decoupled=True)
    sender.close()
    sender.close()
    assert server.ends() == {5: 1}
    with pytest.raises(TritonModelException, match=CLOSED):
        sender.send(response())


@pytest.mark.parametrize("decoupled", [True, False])
def test_what_cannot_be_sent_is_refused(server: AnsweringServer, decoupled: bool) -> None:
    sender = InferenceResponseSender(5, decoupled)
    with pytest.raises(TritonModelException, match=r"^Inference Response object must be provided when"):
        sender.send()
    with pytest.raises(TritonModelException, match=r"^Unable to send response\. Unsupported flag provided\.$"):
        sender.send(response(), 2)
    with pytest.raises(TypeError):
        sender.send("text")  # type: ignore[arg-type] # what the test is about
    assert server.sent.empty()


def test_a_model_in_default_mode_sends_one_response_which_is_the_end(server: AnsweringServer) -> None:
    sender = IncomingRequest(5, []).get_response_sender()
    with pytest.raises(TritonModelException, match=r"^Non-decoupled model cannot send complete final before sending a"):
        sender.send(flags=RESPONSE_FINAL)
    only = response()
    sender.send(only)
    assert server.sent.get() == (5, only, RESPONSE_FINAL)
    with pytest.raises(TritonModelException, match=r"^Non-decoupled model cannot send more than one response$"):
        sender.send(response())
    sender.send(flags=RESPONSE_FINAL)
    assert server.sent.empty()
    with pytest.raises(TritonModelException, match=CLOSED):
        sender.send(response())


def test_who_sends_to_nobody_is_told(server: AnsweringServer) -> None:
    sender = InferenceResponseSender(5, decoupled=True)
    server.gone.add(5)
    with pytest.raises(TritonModelException, match="gone"):
        sender.send(response())


@pytest.mark.parametrize("decoupled", [True, False])
def test_a_request_that_nobody_can_end_is_reported(server: AnsweringServer, decoupled: bool) -> None:
    came = IncomingRequest(5, [], decoupled=decoupled)
    sender = came.get_response_sender()
    del came
    gc.collect()
    assert server.dropped_keys == []
    del sender
    gc.collect()
    assert server.dropped_keys == [5]


def test_a_decoupled_request_whose_sender_nobody_took_is_reported(server: AnsweringServer) -> None:
    came = IncomingRequest(5, [], decoupled=True)
    del came
    gc.collect()
    assert server.dropped_keys == [5]


@pytest.mark.parametrize("decoupled", [True, False])
def test_a_request_that_has_its_end_is_not_reported(server: AnsweringServer, decoupled: bool) -> None:
    InferenceResponseSender(5, decoupled).send(response(), RESPONSE_FINAL)
    InferenceResponseSender(6, decoupled).take_end()
    InferenceResponseSender(7, decoupled).keep_open()
    gc.collect()
    assert server.dropped_keys == []


def test_a_request_gets_one_end_from_two_threads(server: AnsweringServer) -> None:
    taken = []

    def send(sender: InferenceResponseSender, go: threading.Barrier) -> None:
        go.wait(60)
        try:
            sender.send(response(), RESPONSE_FINAL)
        except TritonModelException:
            taken.append("refused")

    def take(sender: InferenceResponseSender, go: threading.Barrier) -> None:
        go.wait(60)
        if sender.take_end():
            taken.append("taken")

    for key in range(200):
        taken.clear()
        sender = InferenceResponseSender(key, decoupled=True)
        go = threading.Barrier(2)
        threads = [threading.Thread(target=run, args=(sender, go)) for run in (send, take)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ends = server.ends().get(key, 0)
        assert (ends, sorted(taken)) in [(1, []), (0, ["refused", "taken"])]
