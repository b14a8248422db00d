"""A request that is not served, as the protocol says it: one JSON member, and `Retry-After` where another try may do"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .asgi import Send

__all__ = ["refusal", "refuse"]


def refusal(status: int, text: str, headers: Mapping[str, str] | None = None, *, closes: bool = False) -> JSONResponse:
    """
    headers: in the place of the usual ones.
    closes: the client's connection ends behind it.
    """
    usual = {"retry-after": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    said = usual if headers is None else dict(headers)
    if closes:
        said["connection"] = "close"
    return JSONResponse({"error": text}, status, said)


async def refuse(send: Send, status: int, text: str, *, closes: bool = False) -> None:
    """Answers with it"""
    made = refusal(status, text, closes=closes)
    await send({"type": "http.response.start", "status": status, "headers": made.raw_headers})
    await send({"type": "http.response.body", "body": made.body})
