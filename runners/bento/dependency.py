"""A service's way to its engine: in the same place in the class as `bentoml.depends`, with the models behind it"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from _bentoml_sdk.service.dependency import Dependency

from ..client import Client
from ..engine import Engine
from ..errors import ConfigInvalid, ShuttingDown
from ..settings import engine_elsewhere
from .place import Place, address_of, place_of
from .relay.origin import Origin
from .remote import RemoteClient

if TYPE_CHECKING:
    from ..calls import Calls
    from .engine_service import EngineService

__all__ = ["EngineDependency", "depends"]

_THIS_HOST = ("file://", "unix://", "tcp://127.0.0.1:", "http://127.0.0.1:", "http://localhost:")


class EngineDependency(Dependency[Any]):
    """
    The engine of `on`: a Client of its process under `bentoml serve`, a Client of `url` where the engine runs
    elsewhere, an Engine in this process everywhere else, as in a test.
    """

    on: EngineService | None
    _resolved: Any

    def get(self, **_: Any) -> Client | Engine:  # noqa: ANN401 - BentoML injects here
        if self._resolved is not None:
            return cast("Client | Engine", self._resolved)
        url = self.engine_url
        if url is None:
            return cast("EngineService", self.on).open()
        return Client(url) if self.place else RemoteClient(url)

    @property
    def engine_url(self) -> str | None:
        """Where the engine is; None for one in this process"""
        return f"unix://{self.place.local}" if self.place else self.url or self._address

    @property
    def place(self) -> Place | None:
        """The sockets of the engine that this `bentoml serve` runs"""
        address = self._address
        return place_of(address) if address and address.startswith(_THIS_HOST) else None

    @property
    def origin(self) -> Origin | None:
        """Where the engine speaks HTTP"""
        if self.place:
            return Origin.at(self.place)
        return Origin.of(self.engine_url) if self.engine_url else None

    @property
    def _address(self) -> str | None:
        return None if self.url or self.on is None else address_of(self.on.name)

    def forget_closed(self) -> None:
        """What a test has closed is not for the next instance"""
        try:
            if isinstance(self._resolved, Engine):
                self._resolved.is_server_live()
        except ShuttingDown:
            self._resolved = None

    async def close(self) -> None:
        """Closes what was opened for this process"""
        opened, self._resolved = self._resolved, None
        if opened is not None:
            await asyncio.to_thread(opened.close)


def depends(on: EngineService | None = None, *, url: str | None = None) -> Calls:
    """
    Declares that a service asks the models of `on`, as `bentoml.depends` does for other services:

        models = depends(Models)

    In an instance, `self.models` has the verbs of Client and Engine. `url`, or the variable KUSHI_ENGINE_URL, names an
    engine that runs elsewhere; then this service starts none, and `on` may be left out. What such an engine asks for,
    tokens and certificates, is said by other variables: KUSHI_ENGINE_HEADERS, KUSHI_ENGINE_CA_CERT,
    KUSHI_ENGINE_CLIENT_CERT, KUSHI_ENGINE_CLIENT_KEY.
    """
    elsewhere = engine_elsewhere(url)
    if elsewhere:
        # refuses what it cannot speak, and asks nobody
        Client(elsewhere.url, **elsewhere.options).close()
    elif on is None:
        raise ConfigInvalid("depends() was given neither an engine nor a url, expected one, or KUSHI_ENGINE_URL")
    if not (on is None or hasattr(on, "open")):
        raise TypeError(f"depends() expects what engine() made, got {on!r}: other services are for bentoml.depends()")
    return cast("Calls", EngineDependency(on, url=elsewhere and elsewhere.url))
