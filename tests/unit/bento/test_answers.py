"""What BentoML does again for each answer is done once, and the answer is the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
from _bentoml_impl.serde import JSONSerde
from _bentoml_sdk.io_models import IODescriptor
from starlette.responses import Response

from runners.bento.web.answers import in_one_piece, remember_content_types
from tests.unit.bento.asgi import Call, ask

if TYPE_CHECKING:
    from pydantic import BaseModel


def _output(kind: Any) -> Any:  # noqa: ANN401 - BentoML's descriptors say no types
    async def method() -> None: ...

    method.__annotations__["return"] = kind
    return IODescriptor.from_output(method)


def test_the_schema_is_read_once() -> None:
    output = _output(list[float])
    asked: list[type[BaseModel]] = []
    schema = output.model_json_schema

    def counted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - passed on
        asked.append(output)
        return schema(*args, **kwargs)

    output.model_json_schema = counted
    remember_content_types([output])
    assert {output.mime_type() for _ in range(3)} == {"application/json"}
    assert len(asked) == 1


def test_each_kind_of_output_keeps_its_content_type() -> None:
    outputs = [_output(kind) for kind in (str, bytes, dict[str, int], np.ndarray)]
    before = [output.mime_type() for output in outputs]
    remember_content_types(outputs)
    assert [output.mime_type() for output in outputs] == before
    assert before[0] == "text/plain"


def test_a_whole_answer_is_sent_with_its_length() -> None:
    streamed = asyncio.run(_output(list[int]).to_http_response([1, 2], JSONSerde()))
    streamed.headers["x-own"] = "kept"
    answer = asyncio.run(ask(in_one_piece(streamed), Call()))
    assert answer.json() == [1, 2]
    assert answer.headers == {"content-type": "application/json", "x-own": "kept", "content-length": "6"}


def test_other_answers_stay_as_they_are() -> None:
    response = Response(b"text")
    assert in_one_piece(response) is response
