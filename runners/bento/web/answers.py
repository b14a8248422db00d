"""What BentoML works out or does again for each answer, where once is enough"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from _bentoml_sdk.io_models import IterableResponse
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["in_one_piece", "remember_content_types"]


def remember_content_types(outputs: Iterable[type[Any]]) -> None:
    """An answer that is no object has a content type that BentoML reads from its JSON schema, built anew each time"""
    for output in outputs:
        output.mime_type = staticmethod(cache(output.mime_type))


def in_one_piece(response: Response) -> Response:
    """BentoML sends an answer that it has as a whole like a stream, of which every part passes all middleware"""
    if not isinstance(response, IterableResponse):
        return response
    body = b"".join(response.body_iterator)
    whole = Response(body, response.status_code, background=response.background)
    whole.raw_headers = response.raw_headers
    return whole
