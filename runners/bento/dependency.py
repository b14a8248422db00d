"""A service's way to its engine: in the same place in the class as `bentoml.depends`, with the models behind it"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from ..client import Client, check_url
from ..elsewhere import engine_elsewhere
from ..engine import Engine
from ..errors import ConfigInvalid, ShuttingDown
from .internals.dependency import OwnDependency
from .place import Place, place_of
from .relay.origin import Origin
from .remote import RemoteClient

if TYPE_CHECKING:
    from ..calls import Calls
    from .engine_service import EngineService

__all__ = ["EngineDependency", "depends"]

_NEITHER = "depends() was given neither an engine nor a url, expected one, or KUSHI_ENGINE_URL"
_THIS_HOST = ("file://", "unix://", "http://127.0.0.1:", "http://localhost:")


class EngineDependency(OwnDependency):
    """
    The engine of `on`: a Client of its process under `bentoml serve`, a Client of `url` where the engine runs
    elsewhere, an Engine in this process everywhere else, as in a test.
    """

    on: EngineService | None

    def find_url(self) -> str | None:
        """That of an engine elsewhere, by the code or by KUSHI_ENGINE_URL"""
        elsewhere = engine_elsewhere(self.stated_url)
        return elsewhere.url if elsewhere else None

    def open(self) -> Client | Engine:
        url = self.engine_url
        if url is None:
            return cast("EngineService", self.on).open()
        return Client(url) if self.place else RemoteClient(url)

    @property
    def engine_url(self) -> str | None:
        """Where the engine is; None for one in this process"""
        if self.on is None and not self.url:
            raise ConfigInvalid(_NEITHER)
        return f"unix://{self.place.local}" if self.place else self.url or self._address

    @property
    def place(self) -> Place | None:
        """The sockets of the engine that this `bentoml serve` runs"""
        address = self._address
        return place_of(address) if address and address.startswith(_THIS_HOST) else None

    @property
    def origin(self) -> Origin | None:
        """Where the engine speaks HTTP"""
        if self.place and self.on:
            return Origin.at(self.place, speaks_grpc=self.on.speaks_grpc)
        return Origin.of(self.engine_url) if self.engine_url else None

    @property
    def _address(self) -> str | None:
        return None if self.url or self.on is None else self.on.url

    def check(self) -> None:
        """Raises where an engine elsewhere is named that cannot be asked; asks nobody"""
        elsewhere = engine_elsewhere(self.stated_url)
        if elsewhere:
            Client(elsewhere.url, **elsewhere.options).close()
        elif self.on is None:
            raise ConfigInvalid(_NEITHER)

    def forget_closed(self) -> None:
        """What a test has closed is not for the next instance"""
        try:
            if isinstance(self.opened, Engine):
                self.opened.is_server_live()
        except ShuttingDown:
            self.forget()

    async def close(self) -> None:
        """Closes what was opened for this process"""
        opened = self.forget()
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
    if url is not None:
        check_url(url)
    if not (on is None or hasattr(on, "open")):
        raise TypeError(f"depends() expects what engine() made, got {on!r}: other services are for bentoml.depends()")
    return cast("Calls", EngineDependency(on, url=url))
