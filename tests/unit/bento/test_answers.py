"""What BentoML does again for each answer is done once, and the answer is the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import bentoml
import numpy as np
import pytest
from starlette.responses import Response

from runners.bento.internals.endpoints import remember_content_type
from runners.bento.relay.exchange import BrokenAnswer
from runners.bento.web.answers import break_off_failed_streams, in_one_piece
from tests.bentoml_internals import ALL_SERDE
from tests.unit.bento.asgi import Call, ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel


def _output(kind: Any) -> Any:  # noqa: ANN401 - BentoML's descriptors say no types
    async def method() -> None: ...

    method.__annotations__["return"] = kind
    return bentoml.IODescriptor.from_output(method)


def test_the_schema_is_read_once() -> None:
    output = _output(list[float])
    asked: list[type[BaseModel]] = []
    schema = output.model_json_schema

    def counted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - passed on
        asked.append(output)
        return schema(*args, **kwargs)

    output.model_json_schema = counted
    remember_content_type(output)
    assert {output.mime_type() for _ in range(3)} == {"application/json"}
    assert len(asked) == 1


def test_each_kind_of_output_keeps_its_content_type() -> None:
    outputs = [_output(kind) for kind in (str, bytes, dict[str, int], np.ndarray)]
    before = [output.mime_type() for output in outputs]
    for output in outputs:
        remember_content_type(output)
    assert [output.mime_type() for output in outputs] == before
    assert before[0] == "text/plain"


def test_a_whole_answer_is_sent_with_its_length() -> None:
    streamed = asyncio.run(_output(list[int]).to_http_response([1, 2], ALL_SERDE["application/json"]()))
    streamed.headers["x-own"] = "kept"
    answer = asyncio.run(ask(in_one_piece(streamed), Call()))
    assert answer.json() == [1, 2]
    assert answer.headers == {"content-type": "application/json", "x-own": "kept", "content-length": "6"}


def test_other_answers_stay_as_they_are() -> None:
    response = Response(b"text")
    assert in_one_piece(response) is response


async def _awaited(*, fails: bool) -> AsyncIterator[str]:
    yield "one,"
    if fails:
        raise RuntimeError("it fails")
    yield "two"


def _in_thread(*, fails: bool) -> Iterator[str]:
    yield "one,"
    if fails:
        raise RuntimeError("it fails")
    yield "two"


@pytest.mark.parametrize("stream", [_awaited, _in_thread])
def test_a_stream_that_fails_is_broken_off_and_one_that_does_not_is_whole(stream: Callable[..., Any]) -> None:
    output = _output(AsyncIterator[str] if stream is _awaited else Iterator[str])
    break_off_failed_streams(output)

    async def answer(*, fails: bool) -> bytes:
        return (
            await ask(await output.to_http_response(stream(fails=fails), ALL_SERDE["application/json"]()), Call())
        ).body

    assert asyncio.run(answer(fails=False)) == b"one,two"
    with pytest.raises(BrokenAnswer):
        asyncio.run(answer(fails=True))
