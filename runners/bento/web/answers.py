"""
An answer that is there as a whole is sent in one piece, where BentoML sends it like a stream.

And a stream whose endpoint fails within it is not whole, where BentoML logs the failure and ends it as if it were.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse

from ..internals.endpoints import make_responses_with, pieces_of
from ..relay.exchange import BrokenAnswer

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator

    from ..internals.endpoints import MakeResponse

__all__ = ["break_off_failed_streams", "in_one_piece"]


def in_one_piece(response: Response) -> Response:
    """BentoML sends an answer that it has as a whole like a stream, of which every part passes all middleware"""
    pieces = pieces_of(response)
    if pieces is None:
        return response
    whole = Response(b"".join(pieces), response.status_code, background=response.background)
    whole.raw_headers = response.raw_headers
    return whole


def break_off_failed_streams(answered: type[Any]) -> None:
    """Those of an endpoint that answers with this, from now on"""
    make_responses_with(answered, _breaking_off)


def _breaking_off(make: MakeResponse) -> MakeResponse:
    async def made(answer: Any, serde: Any) -> Response:  # noqa: ANN401 - whatever an endpoint returns
        if not (inspect.isasyncgen(answer) or inspect.isgenerator(answer)):
            return await make(answer, serde)
        stream = _Stream()
        watched = stream.each_async(answer) if inspect.isasyncgen(answer) else stream.each(answer)
        response = await make(watched, serde)
        if isinstance(response, StreamingResponse):
            response.body_iterator = stream.whole(response.body_iterator)
        return response

    return made


class _Stream:
    _is_over = False

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        yield from items
        self._is_over = True

    async def each_async(self, items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for item in items:
            yield item
        self._is_over = True

    async def whole(self, chunks: AsyncIterable[Any]) -> AsyncIterator[Any]:
        async for chunk in chunks:
            yield chunk
        if not self._is_over:
            raise BrokenAnswer("an endpoint failed within an answer, see the log above")
