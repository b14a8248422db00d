"""
Client: the verbs of an Engine, towards an engine in another process or on another host.

The scheme of the url says how: `unix://PATH` is the local door of an engine on this host, with large tensors in shared
memory; `http://HOST:PORT` is any server of the Open Inference Protocol. A client connects when it is first asked, and
again when the other side went away. It belongs to the process that made it, and serves all threads and event loops of
that process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kushi_native

from .calls import Calls
from .errors import InvalidInput, Unsupported, factories

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from numpy.typing import DTypeLike, NDArray

    from .routes import Answer, Route

__all__ = ["Client"]

_EXPECTED = "unix://PATH or http://HOST:PORT"
_ABSENT = ("grpc", "grpcs", "https")


class Client(Calls):
    """
    The models of an engine that runs elsewhere.

        with Client("unix:///run/kushi.sock") as client:
            print(client.digits.run(image)["logits"])

    What an Engine answers and raises, a Client answers and raises; besides that, ConnectionLost when the other side is
    not there or went away.
    """

    def __init__(self, url: str) -> None:
        """
        url: `unix://PATH` of an engine's local socket (`kushi serve --local-socket PATH`, `engine.serve_local(PATH)`),
            or `http://HOST:PORT`.
        """
        scheme, place = _parsed(url)
        kushi_native.register_errors(factories())
        self._url = url
        self._native: kushi_native.LocalClient | kushi_native.HttpClient
        super().__init__(kushi_native.LocalClient(place) if scheme == "unix" else kushi_native.HttpClient(place))

    @property
    def url(self) -> str:
        """Where the engine is"""
        return self._url

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike = "float32") -> NDArray[Any]:
        if isinstance(self._native, kushi_native.LocalClient):
            return self._native.empty(shape, dtype)
        return super().empty(shape, dtype)

    def close(self) -> None:
        """Closes all connections; calls in flight fail with ConnectionLost. A second call does nothing"""
        self._native.close()

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def _call(self, route: Route, deadline: float | timedelta | None = None) -> Answer:
        return self._native.call(route.method, route.path, route.body, deadline)

    async def _async_call(self, route: Route, deadline: float | timedelta | None = None) -> Answer:
        return await self._native.async_call(route.method, route.path, route.body, deadline)


def _parsed(url: str) -> tuple[str, str]:
    """The scheme, and what the native client of it takes"""
    if not isinstance(url, str):
        raise InvalidInput(f"expected a url as text, {_EXPECTED}, got {url!r}")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise InvalidInput(f"expected {_EXPECTED}, got {url!r}{_guess(url)}")
    scheme = scheme.lower()
    if scheme in _ABSENT:
        raise Unsupported(f"{scheme}:// is not supported yet, expected {_EXPECTED}, got {url!r}")
    if scheme == "unix":
        return scheme, _checked_path(url, rest)
    if scheme == "http":
        return scheme, url
    raise InvalidInput(f"unknown scheme {scheme!r}, expected {_EXPECTED}, got {url!r}")


def _guess(url: str) -> str:
    if not url:
        return ""
    scheme, colon, rest = url.partition(":")
    if not colon or scheme.lower() not in {"unix", "http"}:
        scheme, rest = "unix" if "/" in url else "http", url
    return f", did you mean {scheme}://{rest if scheme == 'unix' else rest.lstrip('/')}?"


def _checked_path(url: str, path: str) -> str:
    if not path:
        raise InvalidInput(f"expected the path of a socket after unix://, got {url!r}")
    if "\0" in path:
        raise InvalidInput(f"expected a path without null characters after unix://, got {url!r}")
    return path
