"""The server that BentoML runs in a worker: it makes one by the name `uvicorn.Server`"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["serve_with"]


def serve_with(make: Callable[[uvicorn.Config], uvicorn.Server | None]) -> None:
    """From now on it is the one that `make` makes, where that makes one"""
    given = uvicorn.Server
    if isinstance(given, functools.partial):
        return

    def server(config: uvicorn.Config) -> uvicorn.Server:
        return make(config) or given(config)

    uvicorn.Server = functools.partial(server)  # type: ignore[misc, assignment]
