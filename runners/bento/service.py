"""The decorator of services that ask an engine"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, overload

import bentoml

from ..errors import ConfigInvalid
from ..threads import usable_cores
from .closing import close_without_reset
from .supervisor import replace_workers_in_containers, replace_workers_soon
from .web.bodies import SPARE_BYTES
from .web.edge import MAX_BODY_BYTES, EdgeService
from .web.limits import MAX_MESSAGE_BYTES, MAX_WEBSOCKETS
from .websockets import mount_websockets

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["service"]


@overload
def service(inner: type, /) -> EdgeService: ...


@overload
def service(
    *,
    max_body_bytes: int = ...,
    max_bodies_bytes: int | None = ...,
    max_message_bytes: int = ...,
    max_websockets: int = ...,
    **config: Any,  # noqa: ANN401 - of bentoml.service
) -> Callable[[type], EdgeService]: ...


def service(
    inner: type | None = None,
    /,
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    max_bodies_bytes: int | None = None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    max_websockets: int = MAX_WEBSOCKETS,
    **config: Any,
) -> EdgeService | Callable[[type], EdgeService]:
    """
    `bentoml.service` for a class that asks an engine, with the engine's routes on the same port.

    max_body_bytes: the largest request body that the endpoints read; the engine bounds that of its own routes.
    max_bodies_bytes: what the bodies of such requests may have together in one worker, at least `max_body_bytes`;
        16 MiB more than that unless it is given.
    max_message_bytes: the largest message of a WebSocket.
    max_websockets: that one worker serves at the same time.
    config: as for bentoml.service. `workers` is the number of usable cores unless it is given.
    """
    if max_bodies_bytes is None:
        max_bodies_bytes = max_body_bytes + SPARE_BYTES
    elif max_bodies_bytes < max_body_bytes:
        raise ConfigInvalid(
            f"max_bodies_bytes is {max_bodies_bytes}, expected at least the {max_body_bytes} of max_body_bytes"
        )

    def decorate(inner: type) -> EdgeService:
        given = {"workers": usable_cores(), **config}
        made = cast("EdgeService", bentoml.service(service_class=EdgeService, **given)(inner))
        made.max_body_bytes = max_body_bytes
        made.max_bodies_bytes = max_bodies_bytes
        made.max_message_bytes = max_message_bytes
        made.max_websockets = max_websockets
        mount_websockets(made)

        @bentoml.on_deployment
        def look_after_workers() -> None:
            """Runs in BentoML's supervisor, before it prepares the worker of an engine of its own"""
            # Workers that cannot start would be started for ever.
            for found in made.engines:
                found.check()
            replace_workers_soon()
            close_without_reset()
            if all(found.url for found in made.engines):
                replace_workers_in_containers()

        inner.kushi_look_after_workers = look_after_workers  # type: ignore[attr-defined]
        return made

    return decorate if inner is None else decorate(inner)
