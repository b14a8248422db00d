"""Answers as server-sent events: what is a status, and what an event."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from runners import ConnectionLost, InvalidInput
from runners.bento import events

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Answer(BaseModel):
    text: str


def received(*answers: str | Exception) -> list[str]:
    async def given() -> AsyncGenerator[Answer, None]:
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
            yield Answer(text=answer)

    async def run() -> list[str]:
        taken: list[str] = []
        try:
            async for event in events(given()):
                taken.append(event)  # noqa: PERF401 - what came before a failure stays
        except ZeroDivisionError:
            taken.append("raised")
        return taken

    return asyncio.run(run())


def test_each_answer_is_an_event() -> None:
    assert received("one", "two\nlines") == ['data: {"text":"one"}\n\n', 'data: {"text":"two\\nlines"}\n\n']


def test_a_failure_before_the_first_has_its_status() -> None:
    with pytest.raises(InvalidInput, match=r"^no$"):
        received(InvalidInput("no"))


def test_a_failure_after_it_is_the_last_event() -> None:
    assert received("one", InvalidInput("no"))[1:] == ['event: error\ndata: {"error": "no"}\n\n']


def test_where_an_engine_is_stays_here() -> None:
    assert "10.0.0.7" not in received("one", ConnectionLost("10.0.0.7:8000 is gone"))[1]


def test_what_went_wrong_in_the_service_is_for_the_log() -> None:
    assert received("one", ZeroDivisionError("secret"))[1:] == [
        'event: error\ndata: {"error": "the service failed"}\n\n',
        "raised",
    ]
