from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any, Callable

import numpy as np
import pytest

from runners.worker.errors import TritonModelException
from runners.worker.functions import get_output_tensor_by_name
from runners.worker.requests import IncomingRequest, InferenceRequest, InferenceTrace, MemoryType, PreferredMemory
from runners.worker.responses import RESPONSE_FINAL, InferenceResponse, ResponseIterator
from runners.worker.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.worker.answering import AnsweringServer


def numbers(*values: int) -> Tensor:
    return Tensor("IN", np.array(values, dtype=np.int32))


def request(**changes: Any) -> InferenceRequest:
    fields: dict[str, Any] = {"model_name": "m", "inputs": [numbers(1)], "requested_output_names": ["OUT"]}
    return InferenceRequest(**{**fields, **changes})


def echo(asked: InferenceRequest) -> Iterator[InferenceResponse]:
    yield InferenceResponse([Tensor("OUT", asked.inputs()[0].as_numpy())])


def count_down(asked: InferenceRequest) -> Iterator[InferenceResponse]:
    for left in range(int(asked.inputs()[0].as_numpy()[0]), 0, -1):
        yield InferenceResponse([Tensor("OUT", np.array([left]))])


def out(response: Any) -> list[int]:
    tensor = get_output_tensor_by_name(response, "OUT")
    assert tensor is not None
    values: list[int] = tensor.as_numpy().tolist()
    return values


@pytest.mark.parametrize("absent", ["model_name", "inputs", "requested_output_names"])
def test_a_request_needs_its_model_inputs_and_outputs(absent: str) -> None:
    fields = {"model_name": "m", "inputs": [], "requested_output_names": []}
    del fields[absent]
    with pytest.raises(TypeError, match=absent):
        InferenceRequest(**fields)  # type: ignore[arg-type] # what the test is about


@pytest.mark.parametrize(
    "field",
    [
        "model_name",
        "inputs",
        "requested_output_names",
        "request_id",
        "correlation_id",
        "model_version",
        "flags",
        "timeout",
    ],
)
def test_no_field_of_a_request_is_none(field: str) -> None:
    with pytest.raises(TypeError):
        request(**{field: None})


def test_what_is_near_is_taken() -> None:
    tensor = numbers(1)
    made = request(
        model_name=b"m",
        inputs=(tensor,),
        requested_output_names=np.array([b"OUT", "MORE"], dtype=np.object_),
        request_id=b"r",
        model_version=np.int64(2),
        flags=np.uint8(1),
    )
    assert (made.model_name(), made.inputs(), made.requested_output_names()) == ("m", [tensor], ["OUT", "MORE"])
    assert (made.request_id(), made.model_version(), made.flags()) == ("r", 2, 1)


@pytest.mark.parametrize("fields", [{"timeout": 1.5}, {"inputs": "text"}, {"inputs": {}}, {"correlation_id": b"x"}])
def test_what_is_farther_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        request(**fields)


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError):
        request(correleation_id=1)


def test_empty_inputs_and_outputs_are_refused() -> None:
    with pytest.raises(TritonModelException, match="Input tensor for request with id '7' and model name 'm' should"):
        request(inputs=[None], request_id="7")
    with pytest.raises(TritonModelException, match="Requested output name for request with id ''"):
        request(requested_output_names=[""])
    with pytest.raises(TypeError):
        request(requested_output_names=[None])
    assert request(inputs=[], requested_output_names=[]).inputs() == []


def test_a_request_has_what_it_was_made_with() -> None:
    tensor = numbers(1)
    made = request(
        inputs=[tensor],
        request_id="r",
        correlation_id="s",
        model_version=3,
        flags=1,
        timeout=5,
        preferred_memory=PreferredMemory(MemoryType.TRITONSERVER_MEMORY_GPU, 2),
        trace=InferenceTrace('{"traceparent": "00"}'),
        parameters={"a": True, "b": 1, "c": "x"},
    )
    assert made.inputs() == [tensor]
    assert (made.request_id(), made.correlation_id(), made.model_name(), made.model_version()) == ("r", "s", "m", 3)
    assert (made.flags(), made.timeout(), made.requested_output_names()) == (1, 5, ["OUT"])
    memory = made.preferred_memory()
    assert memory is not None
    assert (memory.memory_type.name, memory.device_id) == ("TRITONSERVER_MEMORY_GPU", 2)
    assert made.trace().get_context() == '{"traceparent": "00"}'
    assert json.loads(made.parameters()) == {"a": True, "b": 1, "c": "x"}
    made.set_flags(2)
    assert made.flags() == 2


def test_a_request_begins_with_the_defaults_of_triton() -> None:
    made = request()
    assert (made.request_id(), made.correlation_id(), made.model_version()) == ("", 0, -1)
    assert (made.flags(), made.timeout(), made.parameters(), made.preferred_memory()) == (0, 0, "{}", None)
    assert made.trace().get_context() is None


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ([], ", got <class 'list'>"),
        ({1: "x"}, "Expect parameters keys to have type str, found type <class 'int'>"),
        ({"x": 0.5}, "Expect parameters values to have type bool/int/str, found type <class 'float'>"),
        ({"x": None}, "Expect parameters values to have type bool/int/str, found type <class 'NoneType'>"),
    ],
)
@pytest.mark.parametrize("make", [lambda p: request(parameters=p), lambda p: InferenceResponse([], parameters=p)])
def test_parameters_are_checked(parameters: Any, text: str, make: Callable[[Any], object]) -> None:
    with pytest.raises(TritonModelException) as raised:
        make(parameters)
    assert text in str(raised.value)


def test_another_model_is_asked(server: AnsweringServer) -> None:
    server.models["m"] = echo
    made = request(inputs=[numbers(4)])
    response = made.exec()
    assert isinstance(response, InferenceResponse)
    assert out(response) == [4]
    assert server.calls == [(made, False)]


def test_a_model_that_is_not_there_is_an_error_and_no_exception(server: AnsweringServer) -> None:
    response = request(model_name="absent").exec()
    assert isinstance(response, InferenceResponse)
    error = response.error()
    assert error is not None
    assert (response.has_error(), error.message(), error.code()) == (True, "unknown model 'absent'", error.NOT_FOUND)


def test_a_model_that_ends_without_a_response_is_an_error(server: AnsweringServer) -> None:
    server.models["m"] = lambda _: iter(())
    response = request().exec()
    assert isinstance(response, InferenceResponse)
    assert response.has_error()


def test_a_decoupled_model_gives_an_iterator(server: AnsweringServer) -> None:
    server.models["m"] = count_down
    responses = request(inputs=[numbers(3)]).exec(decoupled=True)
    assert isinstance(responses, ResponseIterator)
    assert [out(response) for response in responses] == [[3], [2], [1]]
    with pytest.raises(StopIteration):
        next(responses)
    assert server.calls[0][1] is True


def test_an_iterator_is_cancelled(server: AnsweringServer) -> None:
    server.models["m"] = count_down
    responses = request(inputs=[numbers(3)]).exec(decoupled=True)
    assert isinstance(responses, ResponseIterator)
    assert out(next(responses)) == [3]
    responses.cancel()
    error = next(responses).error()
    assert error is not None
    assert error.code() == error.CANCELLED
    assert list(responses) == []
    responses.cancel()


def test_several_models_are_asked_at_once(server: AnsweringServer) -> None:
    together = threading.Barrier(20)

    def meet(asked: InferenceRequest) -> Iterator[InferenceResponse]:
        together.wait(60)
        return echo(asked)

    def late(asked: InferenceRequest) -> Iterator[InferenceResponse]:
        yield from meet(asked)

    server.models["m"] = late

    async def ask() -> list[Any]:
        return await asyncio.gather(*(request(inputs=[numbers(i)]).async_exec() for i in range(20)))

    assert [out(response) for response in asyncio.run(ask())] == [[i] for i in range(20)]


def test_a_request_has_left_before_it_is_awaited(server: AnsweringServer) -> None:
    server.models["m"] = echo

    async def ask() -> None:
        waiting = request().async_exec()
        assert len(server.calls) == 1
        await waiting

    asyncio.run(ask())


def test_a_decoupled_model_is_awaited(server: AnsweringServer) -> None:
    server.models["m"] = count_down

    async def ask() -> list[list[int]]:
        return [out(response) for response in await request(inputs=[numbers(2)]).async_exec(decoupled=True)]

    assert asyncio.run(ask()) == [[2], [1]]


def test_what_belongs_to_incoming_requests_is_refused(server: AnsweringServer) -> None:
    made = request()
    with pytest.raises(TritonModelException):
        made.get_response_sender()
    with pytest.raises(TritonModelException):
        made.is_cancelled()
    with pytest.raises(TritonModelException):
        made.set_release_flags(2)


def test_an_incoming_request_is_a_request(server: AnsweringServer) -> None:
    tensor = numbers(1)
    came = IncomingRequest(
        5,
        [tensor],
        request_id="r",
        correlation_id=9,
        requested_output_names=["OUT"],
        model_name="m",
        model_version=1,
        flags=3,
        timeout=7,
        parameters='{"a":1}',
        trace_context='{"traceparent":"00"}',
    )
    assert isinstance(came, InferenceRequest)
    assert (came.inputs(), came.request_id(), came.correlation_id()) == ([tensor], "r", 9)
    assert (came.requested_output_names(), came.model_name(), came.model_version()) == (["OUT"], "m", 1)
    assert (came.flags(), came.timeout(), came.parameters(), came.preferred_memory()) == (3, 7, '{"a":1}', None)
    assert came.trace().get_context() == '{"traceparent":"00"}'
    assert (came.key, came.rescheduled, came.sender) == (5, False, None)


def test_parameters_can_be_read_where_there_are_none() -> None:
    assert json.loads(IncomingRequest(5, []).parameters()) == {}


def test_an_incoming_request_knows_whether_its_asker_has_gone(server: AnsweringServer) -> None:
    came = IncomingRequest(5, [])
    assert not came.is_cancelled()
    server.gone.add(5)
    assert came.is_cancelled()
    sender = came.get_response_sender()
    assert sender.is_cancelled()
    assert came.get_response_sender() is sender


def test_one_that_has_ended_is_not_cancelled(server: AnsweringServer) -> None:
    came = IncomingRequest(5, [], decoupled=True)
    sender = came.get_response_sender()
    sender.send(flags=RESPONSE_FINAL)
    server.gone.add(5)
    assert not came.is_cancelled()
    assert not sender.is_cancelled()


def test_an_incoming_request_is_scheduled_again() -> None:
    came = IncomingRequest(5, [])
    came.set_release_flags(2)
    assert came.rescheduled
    came.set_release_flags(1)
    assert not came.rescheduled
    with pytest.raises(TritonModelException):
        came.set_release_flags(3)
