"""Answers that come one after the other, as server-sent events."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING

from ..errors import KushiError
from .error_text import error_text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pydantic import BaseModel

__all__ = ["events"]


async def events(answers: AsyncGenerator[BaseModel, None]) -> AsyncGenerator[str, None]:
    """
    What a method of a service sends that streams

        async for event in events(self.pages(document)):
            yield event

    Each answer is an event with its JSON. A failure before the first is raised, so that it has its status; one after it
    becomes the last event, named `error`, with `{"error": text}`: the text of a KushiError, since others are for the
    log.
    """
    begun = False
    async with aclosing(answers):
        try:
            async for each in answers:
                begun = True
                yield f"data: {each.model_dump_json()}\n\n"
        except KushiError as error:
            if not begun:
                raise
            yield _failed(error_text(error))
        except Exception:
            if begun:
                yield _failed("the service failed")
            raise


def _failed(text: str) -> str:
    return f"event: error\ndata: {json.dumps({'error': text})}\n\n"
