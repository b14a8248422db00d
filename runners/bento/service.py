"""The decorator of services that ask an engine"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, overload

import bentoml

from ..threads import usable_cores
from .web.edge import MAX_BODY_BYTES, EdgeService

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["service"]


@overload
def service(inner: type, /) -> EdgeService: ...


@overload
def service(*, max_body_bytes: int = ..., **config: Any) -> Callable[[type], EdgeService]: ...  # noqa: ANN401 - of bentoml.service


def service(
    inner: type | None = None, /, *, max_body_bytes: int = MAX_BODY_BYTES, **config: Any
) -> EdgeService | Callable[[type], EdgeService]:
    """
    `bentoml.service` for a class that asks an engine, with the engine's routes on the same port.

    max_body_bytes: the largest request body that the endpoints read; the engine bounds that of its own routes.
    config: as for bentoml.service. `workers` is the number of usable cores unless it is given.
    """

    def decorate(inner: type) -> EdgeService:
        given = {"workers": usable_cores(), **config}
        made = cast("EdgeService", bentoml.service(service_class=EdgeService, **given)(inner))
        made.max_body_bytes = max_body_bytes
        return made

    return decorate if inner is None else decorate(inner)
